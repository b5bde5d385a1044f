"""`lab kernel`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from lab.cluster.joining import joined
from lab.commands import options
from lab.compare.exact import default_jobs
from lab.core import executor, records
from lab.core.progress import Meter
from lab.kernels import compilers, resolve, store
from lab.kernels import kernel as kernel_kernel


@click.group()
def kernel() -> None:
    """Build kernels, list them, clear them out."""


@kernel.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@options.tree
@click.option("--cc", default=compilers.DEFAULT, show_default=True, help="The compiler.")
@options.jobs
@options.elsewhere()
@options.json_output
def build(
    specs: tuple[str, ...],
    tree: str | None,
    cc: str,
    jobs: int | None,
    cluster: str | None,
    share: str | None,
    as_json: bool,
) -> None:
    """Make kernels ready to boot: build, or download, what is not in the store.

    \b
    Example:
      lab kernel build efa7df3e3bb5 efa7df3e3bb5%CONFIG_SLUB_DEBUG=y
    """
    rows = []
    with Meter() as meter, joined(cluster, share, meter):
        resolved = [resolve.resolve(text, tree, progress=meter.news) for text in specs]
        for note in [spec.note for spec in resolved if spec.note]:
            meter.say(note)
        made = executor.each(
            lambda spec: kernel_kernel.obtain(spec, cc=cc, jobs=jobs or default_jobs(), meter=meter), resolved
        )
        for spec, ready in zip(resolved, made, strict=True):
            files = {"bzImage": ready.bzimage, "vmlinux": ready.vmlinux, "System.map": ready.symbols}
            rows.append(
                {
                    "spec": spec.text,
                    "build": ready.key,
                    "commit": ready.commit,
                    "release": ready.release,
                    "files": {name: str(path) for name, path in files.items() if path},
                    "sha256": {name: records.file_digest(path) for name, path in files.items() if path},
                }
            )
    if as_json:
        click.echo(records.encode({"schema": "lab.kernel/1", "kernels": rows}), nl=False)
        return
    for row in rows:
        click.echo(f"{str(row['build'])[:12]}  {row['release']}  {row['spec']}")


@kernel.command("list")
@options.json_output
def list_(as_json: bool) -> None:
    """The kernels in the store.

    \b
    Example:
      lab kernel list
    """
    found = list(store.builds())
    if as_json:
        rows = [{**records.plain(build), "folder": str(folder), "used": _when(used)} for build, folder, used in found]
        click.echo(records.encode({"schema": "lab.kernels/1", "kernels": rows}), nl=False)
        return
    for build, _, used in found:
        click.echo(f"{build.key[:12]}  {build.release}  {build.commit[:12]}  {build.subject}  (used {_when(used)})")


@kernel.command()
@click.option("--older-than", type=options.Duration(), default=30 * 86400.0, help="Unused for this long (30d).")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def gc(older_than: float, dry_run: bool) -> None:
    """Remove kernels that were not used for a while, and leftovers of killed builds.

    \b
    Example:
      lab kernel gc --older-than 7d --dry-run
    """
    removed = store.collect_garbage(older_than, dry_run=dry_run)
    for path, size in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path.name} ({size >> 20} MiB)")
    click.echo(f"{len(removed)} of {len(list(store.builds())) + (0 if dry_run else len(removed))} kernels")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
