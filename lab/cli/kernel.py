"""`lab kernel`, `lab image`, `lab tree` and `lab shell`: kernels, the guest image, trees, and a shell in a guest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click

from lab.cli import gc as garbage
from lab.cli import options
from lab.core import records
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.core.text import columns
from lab.guests import exact, kvm
from lab.guests import image as guest_image
from lab.guests import shell as guest_shell
from lab.guests.image import Image
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import architecture, archives, compilers, debs, store, trees
from lab.kernels.kernel import Kernel, resolve
from lab.kernels.package_lists import Offer


@click.group()
def kernel() -> None:
    """Build kernels, list them, clear them out."""


@kernel.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, shell_complete=options.complete_spec)
@options.tree
@click.option("--cc", default=compilers.DEFAULT, show_default=True, help="The compiler.")
@options.jobs
@options.executor
@options.json_output
def build(specs: tuple[str, ...], tree: str | None, cc: str, as_json: bool, **means: Any) -> None:
    """Make kernels ready to boot: build, or download, the ones that are not in the store.

    \b
    Example:
      lab kernel build efa7df3e3bb5 efa7df3e3bb5%CONFIG_SLUB_DEBUG=y
    """
    with options.work(**means) as work:
        resolved = [resolve(text, tree, progress=work.progress) for text in specs]
        for note in [spec.note for spec in resolved if spec.note]:
            work.progress.log(note)
        built = work.map(lambda spec: spec.obtain(work, cc=cc), resolved)
    if as_json:
        rows = [{"spec": spec.text, **_described(kernel)} for spec, kernel in zip(resolved, built, strict=True)]
        options.print_json({"schema": "lab.kernel/1", "kernels": rows})
        return
    for spec, kernel in zip(resolved, built, strict=True):
        click.echo(f"{kernel.key[:12]}  {kernel.release}  {spec.text}")


def _described(kernel: Kernel) -> dict[str, object]:
    files = {"bzImage": kernel.bzimage, "vmlinux": kernel.vmlinux, "System.map": kernel.symbols}
    return {
        "build": kernel.key,
        "commit": kernel.commit,
        "release": kernel.release,
        "files": {name: str(path) for name, path in files.items() if path},
        "sha256": {name: records.file_digest(path) for name, path in files.items() if path},
    }


@kernel.command("list")
@click.option("--available", is_flag=True, help="List the kernel packages of all suites of Debian instead.")
@click.option("--refresh", is_flag=True, help="With --available: fetch the package lists now, not once a day.")
@click.option("--arch", metavar="NAME", help="With --available: packages of this architecture (default: x86_64).")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@options.json_output
def list_kernels(words: tuple[str, ...], available: bool, refresh: bool, arch: str | None, as_json: bool) -> None:
    """List the kernels in the store and the downloaded packages, or the packages that deb: specs can name.

    With --available, WORDs choose packages: each must be in the suite, the name or the version.

    \b
    Example:
      lab kernel list --available backports 7.2 cloud
    """
    if available:
        guests = architecture.load(arch or architecture.DEFAULT).name
        with Progress() as progress:
            _print_offers(debs.available(words, progress, refresh=refresh, guests=guests), as_json)
        return
    if words or refresh or arch:
        raise UserError(f"{words[0] if words else '--refresh' if refresh else '--arch'} requires --available")
    builds, packages = list(store.builds()), sorted(map(str, archives.downloaded(architecture.names())))
    if as_json:
        rows = [{**records.plain(build), "folder": str(folder), "used": _when(used)} for build, folder, used in builds]
        options.print_json({"schema": "lab.kernels/1", "kernels": rows, "packages": packages})
        return
    for build, _, used in builds:
        click.echo(f"{build.key[:12]}  {build.release}  {build.commit[:12]}  {build.subject}  (used {_when(used)})")
    for path in packages:
        click.echo(f"package  {path}")
    if not builds and not packages:
        click.echo("no kernel was built or downloaded; `lab kernel list --available` lists packages", err=True)


def _print_offers(offers: Sequence[Offer], as_json: bool) -> None:
    if as_json:
        options.print_json({"schema": "lab.packages/1", "packages": [offer._asdict() for offer in offers]})
        return
    options.print_lines(columns([("suite", "package", "version"), *offers] if offers else []))
    if not offers:
        click.echo("no such kernel package in any suite", err=True)


@kernel.command()
@click.option("--older-than", type=options.Duration(), default=30 * 86400.0, help="Unused for this long (30d).")
@click.option("--dry-run", is_flag=True, help="Only list these files.")
def gc(older_than: float, dry_run: bool) -> None:
    """Remove kernels that were not used for a while, and leftovers of killed builds.

    \b
    Example:
      lab kernel gc --older-than 7d --dry-run
    """
    deleted, kept = garbage.collect([*garbage.kernels()], older_than_s=older_than, dry_run=dry_run)
    for item in deleted:
        click.echo(f"{'would remove' if dry_run else 'removed'} {item.path.name} ({item.size >> 20} MiB)")
    click.echo(f"{len(deleted)} of {len(deleted) + len(kept)} kernels")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")


@click.group()
def image() -> None:
    """Build and list the guest image that both arms boot."""


@image.command("build")
@click.option("--refresh", is_flag=True, help="Build it anew, with the package versions offered now.")
@options.json_output
def build_image(refresh: bool, as_json: bool) -> None:
    """Build the guest image, if it is not there.

    \b
    Example:
      lab image build
    """
    with Progress() as progress:
        record, folder = guest_image.rebuild(progress) if refresh else guest_image.obtain(progress)
    options.show({**records.plain(record), "folder": str(folder)}, [_line(record)], as_json=as_json)


@image.command("list")
@options.json_output
def list_images(as_json: bool) -> None:
    """List the images that were built.

    \b
    Example:
      lab image list
    """
    built = guest_image.built()
    rows = [{**records.plain(record), "folder": str(folder)} for record, folder in built]
    lines = [_line(record) for record, _ in built]
    options.show({"schema": "lab.images/1", "images": rows}, lines, as_json=as_json)


def _line(image: Image) -> str:
    return f"{image.key[:12]}  {image.suite}  {len(image.packages)} packages  sha256 {image.sha256[:12]}"


@click.group()
def tree() -> None:
    """Add and list kernel trees."""


@tree.command()
@click.argument("origin", metavar="URL-or-PATH")
@click.option("--name", help="The name of the tree (default: the last part of the address).")
def add(origin: str, name: str | None) -> None:
    """Clone a kernel tree, or refer to a checkout of yours (which is never written to).

    Clones fetch the history now and file contents when they are needed.

    Example: lab tree add https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git
    """
    with Progress() as progress:
        added = trees.add(origin, name, progress=progress)
    click.echo(f"{added.name}: {added.source.describe(added.head)} ({added.source.subject(added.head)})")


@tree.command("list")
@options.json_output
def list_trees(as_json: bool) -> None:
    """List the trees.

    Example: lab tree list --json
    """
    known = trees.list_trees()
    if as_json:
        options.print_json({"schema": "lab.trees/1", "trees": known})
        return
    for record in known:
        version = f" {record.version}" if record.version else ""
        click.echo(f"{record.name:<16} {record.kind:<8} {record.origin}{version}")
    if trees.DEFAULT not in {record.name for record in known}:
        click.echo(f"the {trees.DEFAULT} tree is imported when it is first needed", err=True)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("spec", shell_complete=options.complete_spec)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@options.tree
@click.option("--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True)
@click.option("--cpus", type=click.IntRange(min=1), default=1, show_default=True, help="vCPUs of the guest.")
@click.option("--memory", type=click.IntRange(min=128), default=1024, show_default=True, help="Its memory, in MiB.")
@click.option("--cc", default=compilers.DEFAULT, show_default=True, help="Compiler of the kernel.")
@options.qemu
@options.guest_timeout_of("300s for a command, no limit for a shell")
@options.jobs
def shell(
    spec: str,
    command: tuple[str, ...],
    tree: str | None,
    accel: Literal["auto", "kvm", "tcg"],
    cpus: int,
    memory: int,
    cc: str,
    qemu: str,
    guest_timeout: float | None,
    jobs: int | None,
) -> int:
    """Boot a kernel with the guest image in RAM, without a network, and give a shell in it; or run one command.

    Exits as the command does. Files that it writes are gone with the guest.

    \b
    Example:
      lab shell deb:6.12 -- uname -r
    """
    guest_shell.require_terminal(command)
    program = exact.find_qemu(qemu)
    with options.work(jobs) as work:
        opened = trees.open_tree(tree, progress=work.progress) if tree else None
        resolved = resolve(spec, opened, progress=work.progress)
        settings = dict(resolved.settings)
        probe_s = guest_timeout or GUEST_TIMEOUT_S
        accelerator = kvm.accelerator(accel, qemu, work.progress, measuring=False, guest_timeout_s=probe_s)
        cpu = kvm.require(qemu, guest_timeout_s=probe_s) if accelerator == "kvm" else "max"
        kernel = resolved.obtain(work, cc=cc)
        root = guest_shell.prepare(kernel, command, settings=settings, progress=work.progress)
    return guest_shell.run(
        kernel, root, command, settings=settings,
        guest=guest_shell.ShellGuest(qemu=program, accelerator=accelerator, cpu=cpu, cpus=cpus, memory_mb=memory),
        timeout_s=guest_timeout or (GUEST_TIMEOUT_S if command else None),
    )  # fmt: skip
