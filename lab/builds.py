"""From a resolved kernel spec to a finished kernel in the store.

The key is the hash of the source's tree object, the resolved kconfig, the compiler and make's variables. What is
stored is never built again; what was interrupted leaves nothing that looks finished.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab import kconfig, store
from lab.compilers import Compiler
from lab.core import ansible, executor, paths, process, records
from lab.core.progress import Meter
from lab.kernelspec import KernelSpec, TreeSource
from lab.store import Build, BuildInputs
from lab.workspace import MAKE_VARIABLES, Workspace, worktree_of


def obtain(spec: KernelSpec, *, compiler: Compiler, jobs: int, meter: Meter) -> Build:
    """The kernel of a spec: from the store, or built.

    Raises `UserError` for options that kconfig does not know or drops, `BuildFailed` with the first error of the
    log, `HostFailed` when the disk is too full. A hit calls neither git nor Ansible.
    """
    source = spec.source
    if not isinstance(source, TreeSource):
        raise TypeError("only a tree's revision is built")
    required, optional = kconfig.requested(spec.kconfig)
    request = records.digest([source.tree_id, required, optional, compiler, MAKE_VARIABLES])
    if (build := store.find_request(request)) is None:
        crew = executor.crew()
        given = crew.build(spec, source, compiler, request, meter) if crew else None
        build = given or _build(spec, source, required, optional, compiler, jobs, meter)
        store.remember_request(request, build.key)
    if not store.hold(build):  # `lab gc` took it this very moment
        return obtain(spec, compiler=compiler, jobs=jobs, meter=meter)
    return build


def _build(
    spec: KernelSpec,
    source: TreeSource,
    required: Mapping[str, str],
    optional: Mapping[str, str],
    compiler: Compiler,
    jobs: int,
    meter: Meter,
) -> Build:
    workspace = Workspace(source, compiler, records.digest([required, optional, compiler.version])[:12])
    with workspace.locked(meter):
        resolved = _resolve_kconfig(workspace, dict(spec.kconfig), required, optional, meter)
        inputs = BuildInputs(
            tree_id=source.tree_id,
            kconfig_sha256=records.digest(resolved),
            compiler=compiler.version,
            linker=compiler.linker,
            make=MAKE_VARIABLES,
        )
        key = store.key_of(inputs)
        if (build := store.find(key)) is not None:
            return build
        return workspace.build(spec, inputs, resolved, jobs, meter)


def _resolve_kconfig(
    workspace: Workspace,
    own: Mapping[str, str],
    required: Mapping[str, str],
    optional: Mapping[str, str],
    meter: Meter,
) -> str:
    """The complete `.config` of a request, remembered by everything in the tree that decides it.

    An option of the spec's own that is dropped is an error. So is one of the guest's, unless it gave way to the
    spec's (`%CONFIG_HZ_1000=y` is worth more than the fragment's HZ_250); then it is only said.
    """
    memo = paths.cache_dir("kconfig") / f"{workspace.kconfig_inputs(required, optional)[:24]}.json"
    if memo.is_file():
        return records.load(memo, str)
    resolved = workspace.configure({**optional, **required}, meter)
    kept = kconfig.parse(resolved)
    if lost := kconfig.dropped(own or required, kept):
        raise kconfig.explain_dropped(lost, required, workspace.kconfig_symbols())
    for name in kconfig.dropped(required, kept):
        meter.say(f"{name}={required[name]} gives way to the spec's own options")
    records.save(memo, resolved)
    return resolved


def interrupt(tree: str) -> None:
    """Stop a build of this process in a tree's worktree, if there is one, the way Ctrl-C in a shell would.

    make then removes what is half done, so the build fails and its folder stays good.
    """
    process.interrupt_tagged(ansible.TAG, str(worktree_of(tree)), "make")


def hurry(tree: str) -> None:
    """Give a build of this process in a tree's worktree, if there is one, the priority of the caller."""
    process.hurry_tagged(ansible.TAG, str(worktree_of(tree)))
