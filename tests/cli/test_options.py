"""Commands and the values of their options, where no other test has them."""

import dataclasses
from pathlib import Path

import click
import msgspec
import pytest

from lab.cli import main, options
from lab.core import records
from lab.guests import image
from lab.kernels import store
from lab.kernels.kernel import KernelSpec

from ..fakes import kernel_image
from ..fakes.build import stored
from ..fakes.command import Lab
from ..fakes.guest import IMAGE, kernel

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.mark.parametrize(
    ("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("0.5 %", 0.005), (".1", 0.1), ("99.9%", 0.999)]
)
def test_shares(text: str, share: float) -> None:
    assert options.Share().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "0%", "1", "100%", "2", "-2%", "1.2.3", "nan", "inf", "1e-2", "%", "two"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 2% or"):
        options.Share().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("40m", 2400), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("7d", 604800)]
)
def test_time_spans(text: str, seconds: float) -> None:
    assert options.Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1x", "1h 30m", "-1s", "1h30", "s1", "40 m"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s"):
        options.Duration().convert(text, None, None)


@pytest.mark.parametrize(("path", "complaint"), [("/nowhere/a.svg", "no folder /nowhere"), ("/", "/ is a folder")])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(path: str, complaint: str) -> None:
    with pytest.raises(click.BadParameter, match=complaint):
        options.OutputFile().convert(path, None, None)


@pytest.mark.parametrize("command", ["ab", "aa", "matrix", "bisect"])
@pytest.mark.parametrize("option", ["--budget", "--guest-timeout"])
@pytest.mark.parametrize("span", ["0s", "0.0h", "0h0m"])
def test_no_time_at_all_is_refused(command: str, option: str, span: str, lab: Lab) -> None:
    said = lab(command, option, span, status=2).err
    assert f"Invalid value for '{option}': '{span}' must be longer than 0" in said


def test_kernels_are_listed_and_removed_when_it_is_meant(lab: Lab) -> None:
    key = stored({"bzImage": b"x" * (2 << 20)}, subject="mm: one").key
    assert lab("kernel", "list").out.startswith(f"{key[:12]}  6.99.0  cccccccccccc  mm: one  (used 20")
    (row,) = lab("kernel", "list", "--json").document["kernels"]
    assert (row["key"], row["folder"], row["subject"]) == (key, str(store.folder_of(key)), "mm: one")
    assert lab("kernel", "gc").out == "0 of 1 kernels\n"
    said = lab("kernel", "gc", "--older-than", "0s", "--dry-run").out
    assert said == f"would remove {key[:24]} (2 MiB)\n1 of 1 kernels\n"
    assert store.find(key) is not None
    assert lab("kernel", "gc", "--older-than", "0s").out == f"removed {key[:24]} (2 MiB)\n1 of 1 kernels\n"
    assert store.find(key) is None


def test_a_kernel_is_made_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    path = tmp_path / "vmlinuz"
    path.write_bytes(kernel_image.empty())
    ready = dataclasses.replace(kernel("x"), bzimage=path)
    monkeypatch.setattr(KernelSpec, "obtain", lambda *_, **__: ready)
    assert lab("kernel", "build", f"file:{path}").out == f"key of x  6.99  file:{path}\n"
    document = lab("kernel", "build", f"file:{path}", "--json").document
    assert document["schema"] == "lab.kernel/1"
    assert document["kernels"][0]["sha256"] == {"bzImage": records.file_digest(path)}


def test_images_are_listed(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    assert lab("image", "list", "--json").document == {"schema": "lab.images/1", "images": []}
    record = msgspec.structs.replace(IMAGE, key="k" * 64, sha256="s" * 64, packages={"fio": "3.33"})
    monkeypatch.setattr(image, "built", lambda: [(record, Path("/i"))])
    assert lab("image", "list").out == "kkkkkkkkkkkk  bookworm  1 packages  sha256 ssssssssssss\n"


# --- lab.toml of a checkout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, in whose inner folder the command runs."""
    (tmp_path / "linux" / ".git").mkdir(parents=True)
    (tmp_path / "linux" / "mm").mkdir()
    monkeypatch.chdir(tmp_path / "linux" / "mm")
    return tmp_path / "linux"


def _parsed(command: str, *words: str) -> dict[str, object]:
    # A command keeps the help option of its first context: without the group's settings it would lack -h from then on.
    lab = click.Context(main.lab, **main.lab.context_settings)
    found = main.lab.get_command(lab, command)
    assert found is not None
    return found.make_context(command, list(words), parent=lab).params


def test_a_checkout_has_defaults_and_the_command_line_wins(checkout: Path) -> None:
    (checkout / "lab.toml").write_text(
        'base = "v6.12"\ntest = "HEAD"\nsuite = "quick"\nthreshold = "5%"\nfail_on = "x"\n'
    )
    params = _parsed("ab", "--test", "worktree")
    assert (params["base"], params["test"], params["threshold"], params["fail_on"]) == ("v6.12", "worktree", 0.05, "x")
    assert params["suite"] == "quick" and len(params["workload"]) > 1  # type: ignore[arg-type]
    chosen = _parsed("ab", "-wfio")
    assert (chosen["suite"], chosen["workload"]) == (None, ("fio",))
    assert _parsed("aa")["threshold"] == 0.05
    assert _parsed("aa", "--exec", "true")["suite"] is None
    assert _parsed("ab", "--resume", "x")["base"] is None
    assert _parsed("ci")["base"] == ""


@pytest.mark.parametrize(
    ("words", "suite"),
    [((), "quick"), (("-w", "fio"), None), (("--exec", "true"), None), (("--suite", "quick"), "quick")],
)
def test_the_quick_suite_is_measured_where_nothing_is_named(words: tuple[str, ...], suite: str | None) -> None:
    assert _parsed("ab", *words)["suite"] == _parsed("ci", *words)["suite"] == suite
    assert _parsed("matrix", *words)["suite"] == ("quick" if "--suite" in words else None)


def test_the_file_that_was_used_is_named(checkout: Path, lab: Lab) -> None:
    (checkout / "lab.toml").write_text('base = "v6.12"\nworkload = ["nosuch"]\n')
    assert lab("ab", status=2).err.startswith(f"--base and --workload as in {checkout}/lab.toml\n")
    assert "lab.toml" not in lab("ab", "--base", "A", "-w", "nosuch", status=2).err


def test_an_unknown_key_and_a_value_that_cannot_be_are_refused_by_file(checkout: Path, lab: Lab) -> None:
    (checkout / "lab.toml").write_text('base = "v6.12"\nbudgt = "40m"\n')
    assert lab("ab", status=2).err == (f"lab: {checkout}/lab.toml:2: unknown key 'budgt'; did you mean budget?\n")
    (checkout / "lab.toml").write_text('mode = "fast"\n')
    said = " ".join(lab("ab", status=2).err.split())
    assert "Invalid value for '--mode': 'fast' is not one of" in said and f"(in {checkout}/lab.toml)" in said
