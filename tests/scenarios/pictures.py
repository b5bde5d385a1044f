"""Pictures of stored results' pages, for the documentation: `make pictures ARGS="--bisect ID"`.

Nothing is measured: the newest comparison that found a regression, the newest bisection of a range that named a
culprit, and the newest matrix are taken, unless an ID says which. Each becomes docs/pictures/NAME.png and
NAME-dark.png, in a window as a laptop has it.

Those in the repository are of

    lab ab efa7df3e3bb5^ efa7df3e3bb5 -w alloc-burst; lab explain latest
    lab bisect --series 'deb:trixie-backports/linux-image-6.*-cloud-amd64' -w syscalls:mprotect-private-4m --no-inside
    lab matrix --kernel before=efa7df3e3bb5^ --kernel regressed=efa7df3e3bb5 --kernel fixed=d4148aeab412 \\
        --set thp=always,madvise,never -w alloc-burst:layout-4632k -w alloc-burst:layout-512k
"""

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from lab import report
from lab.bisection.answer import Answer
from lab.compare import result_folders
from lab.compare.matrix_results import MatrixResult
from lab.core.errors import LabError
from lab.core.records import write_atomic
from lab.report import inputs

TOP = Path(__file__).resolve().parents[2]
FOLDER = TOP / "docs" / "pictures"
LARGEST = 200_000
"""Bytes of one picture: the repository carries them for good."""

WIDTH = 1200
PARTS: dict[str, Sequence[tuple[str, str, str]]] = {
    "comparison": [
        ("comparison", "header", "table.cases"),
        ("functions", "details.case[open]", "details.case[open] table.functions"),
    ],
    "bisection": [("range", "#commits-title", "figure.range")],
    "matrix": [("matrix", "header", "section:first-of-type")],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in ("ab", "bisect", "matrix"):
        parser.add_argument(f"--{kind}", metavar="ID", help="of the result to take")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    try:
        _photograph(_pages(asked))
    except LabError as error:
        sys.exit(f"pictures: {error.message}")


def _pages(asked: argparse.Namespace) -> dict[str, str]:
    """The page of each kind of result, by the name of its picture."""
    taken = {
        "comparison": asked.ab or _newest([r.result for r in result_folders.finished() if r.verdict == "regression"]),
        "bisection": asked.bisect
        or _newest([b.result for b in result_folders.all_finished(Answer) if b.outcome == "found" and not b.is_split]),
        "matrix": asked.matrix or _newest([m.result for m in result_folders.all_finished(MatrixResult)]),
    }
    return {kind: report.render("html", inputs.open_stored([name])) for kind, name in taken.items() if name}


def _newest(names: Sequence[str]) -> str | None:
    return names[-1] if names else None


def _photograph(pages: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        program = shutil.which("chromium") or sys.exit("pictures: chromium is not installed; `make chromium` does that")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for kind, text in pages.items():
            path = Path(folder) / f"{kind}.html"
            path.write_text(text)
            for scheme in ("light", "dark"):
                page = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": 900}).new_page()
                page.goto(path.as_uri())
                for name, first, last in PARTS[kind]:
                    _keep(page, name + ("-dark" if scheme == "dark" else ""), first, last)
        browser.close()


def _keep(page: Any, name: str, first: str, last: str) -> None:
    """What lies from one element to the end of another, as a picture."""
    top, bottom = (page.locator(selector).first.bounding_box() for selector in (first, last))
    if top is None or bottom is None:
        sys.exit(f"pictures: {first} or {last} is not on the page")
    height = bottom["y"] + bottom["height"] - top["y"]
    clip = {"x": 0, "y": max(top["y"] - 8, 0), "width": WIDTH, "height": height + 16}
    content = _small(page.screenshot(full_page=True, clip=clip))
    if len(content) > LARGEST:
        sys.exit(f"pictures: {name}.png has {len(content)} bytes, more than {LARGEST}")
    write_atomic(FOLDER / f"{name}.png", content)
    print(f"docs/pictures/{name}.png  {len(content)} bytes")  # noqa: T201


def _small(content: bytes) -> bytes:
    """The same picture with a palette: flat colours lose nothing that is seen."""
    stream = io.BytesIO()
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


if __name__ == "__main__":
    main()
