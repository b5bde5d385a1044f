"""The syntax of kernel specs and settings: parsed and checked, with nothing looked up.

    REV[+PATCH...]   worktree[:PATH][+PATCH...]   src:[SUITE/]VERSION[+PATCH...]
    deb:[SUITE/]VERSION-OR-PACKAGE[:ARCHITECTURE]   file:PATH[+MODULES]   https://ADDRESS#sha256=HEX   SCHEME:VERSION
    each with  %CONFIG_FOO=y[,...]  (kconfig)  and  @key=value[,...]  (settings), in either order

`%arch=NAME` builds for guests of another architecture. `%config=FILE` or `%config=deb:[SUITE/]VERSION-OR-PACKAGE` is
kconfig, too: the configuration of a file or a package in place of the lab's own. For a `src:` tree, `%config=distro` or
`@config:distro` is that of its own package.

Revisions contain `@{1}` and `^{/x}`, package versions `+`, paths anything. So an `@` or `%` begins a suffix only
before a word and `=` (`@sched_feat.NO_NAME` and `@cmdline.nosmt` need no `=`), and a `+` begins a patch only before a
name like that of a patch, an existing file, `lore:` and a message id, the name of patches that come with the
lab, or that of a layout (`layout-2`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from lab.core import paths, settings
from lab.core.errors import UserError, suggestion
from lab.core.records import Record
from lab.kernels import architecture, default_tree, layout, patches

Kind = str
"""`rev`, or the word before the colon."""

Pair = tuple[str, str]

PACKAGED: tuple[Kind, ...] = ("deb",)
"""The words of archives of kernel packages (see `archives`)."""

_PREFIXED: tuple[Kind, ...] = ("worktree", "src", *PACKAGED, "file", "https", "http")
_PATHS: tuple[Kind, ...] = ("worktree", "file")
_BUILT: tuple[Kind, ...] = ("rev", "worktree", "src")

_START = r"(?=[A-Za-z_][\w./-]*=|(?:sched_feat|cmdline|sysctl|cgroup|debugfs|env|mthp)\.[\w./-]+(?:[,@%]|$))"
_SUFFIX = re.compile(rf"@{_START}|%(?=\w+=)")
_NEXT_SETTING = re.compile(rf",{_START}")
_NEXT_SYMBOL = re.compile(r",(?=\w+=)")
_THP = ("always", "madvise", "never")
_SHORT = {"lsm": "cmdline.lsm", "mitigations": "cmdline.mitigations"}
"""Settings that stand for others."""

_DEFRAG = ("always", "defer", "defer+madvise", "madvise", "never")


class Package(NamedTuple):
    """A kernel package at a version. text: the spec that names it."""

    name: str
    version: str
    text: str

    @property
    def label(self) -> str:
        """The package and its version, as apt takes them."""
        return f"{self.name}={self.version}"


class ParsedSpec(Record, frozen=True, kw_only=True):
    """The parts of a spec. Names in `kconfig` begin with CONFIG_, or are `config` or `arch`; patches are as typed."""

    text: str
    kind: Kind
    body: str
    patches: tuple[str, ...] = ()
    kconfig: tuple[Pair, ...] = ()
    settings: tuple[Pair, ...] = ()


def parse(text: str) -> ParsedSpec:
    """Parse a spec; `UserError` if it is malformed. `worktree` alone is `worktree:.`."""
    text = re.sub(r"^worktree(?=[+%@]|$)", "worktree:.", text)
    text = re.sub(r"@config:([^@%,]*)(,?)", lambda match: f"%config={match[1]}{'@' if match[2] else ''}", text)
    if any(ord(char) < 32 for char in text):
        raise UserError(f"kernel spec {text!r} contains a control character")
    rest, kconfig, settings = _split_suffixes(text)
    kind, rest = _kind(rest)
    body, names = _split_patches(kind, rest)
    if not body:
        raise UserError(f"kernel spec {text!r} names no kernel", hint=_EXAMPLES)
    if kind not in _BUILT and (names or kconfig):
        raise UserError(
            f"{text!r}: {'patches' if names else 'kconfig changes'} need a build, "
            f"and {kind}: names a kernel that is built already",
            hint="give a revision, or worktree:PATH",
        )
    return ParsedSpec(text=text, kind=kind, body=body, patches=names, kconfig=kconfig, settings=settings)


def split(text: str) -> tuple[str, str]:
    """A spec's revision with its patches, and the kconfig and settings behind them: further patches go between.

    `UserError` for a kernel that is not built from a revision or a worktree.
    """
    parsed = parse(text)
    if parsed.kind not in _BUILT:
        raise UserError(f"{text} is a built kernel: patches need a revision or a worktree")
    kept = _revision(parsed, parsed.patches)
    return kept, parsed.text.removeprefix(kept)


def for_architecture(text: str, guests: str) -> str:
    """A spec for guests of an architecture; `UserError` if it names another one."""
    parsed = parse(text)
    if parsed.kind not in (*_BUILT, *PACKAGED):
        return text  # the image tells its own
    body, _, own = parsed.body.partition(":") if parsed.kind in PACKAGED else (parsed.body, "", "")
    own = own or dict(parsed.kconfig).get("arch", "")
    if own and own != guests:
        raise UserError(f"{text} is for {own}, and --arch asks for {guests}", hint="leave one of them out")
    if own or (guests == architecture.DEFAULT and parsed.kind not in PACKAGED):
        return text
    if parsed.kind in PACKAGED:
        return text.replace(body, f"{body}:{guests}", 1)
    kept, suffix = split(text)
    return f"{kept}%arch={guests}{suffix}"


def with_layout(text: str, number: int) -> str:
    """A spec with another layout: so many steps after its own. `UserError` as for `split`."""
    suffix, parsed = split(text)[1], parse(text)
    others = [name for name in parsed.patches if layout.number_of(name) is None]
    return _revision(parsed, [*others, layout.name_of(layout_of(text) + number)]) + suffix


def layout_of(text: str) -> int:
    """The number of a spec's layout; 0 for the usual one."""
    return max(layout.number_of(name) or 0 for name in ("", *parse(text).patches))


def _revision(parsed: ParsedSpec, patches: Iterable[str]) -> str:
    prefix = "" if parsed.kind == "rev" else f"{parsed.kind}:"
    return prefix + parsed.body + "".join(f"+{name}" for name in patches)


_EXAMPLES = "e.g. v6.12, efa7df3e3bb5^, v6.12+fix.patch, worktree:., deb:6.12, src:7.2, file:PATH.rpm, v6.12@thp=never"


def _split_suffixes(text: str) -> tuple[str, tuple[Pair, ...], tuple[Pair, ...]]:
    """The spec without its suffixes, the kconfig changes, and the settings."""
    kconfig: dict[str, str] = {}
    settings: dict[str, str] = {}
    starts = [match.start() for match in _SUFFIX.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        suffix = text[start + 1 : end]
        if text[start] == "@":
            _collect(settings, map(_setting, _NEXT_SETTING.split(suffix)))
        else:
            _collect(kconfig, map(_symbol, _NEXT_SYMBOL.split(suffix)))
    return text[: starts[0]] if starts else text, tuple(kconfig.items()), tuple(settings.items())


def _collect(into: dict[str, str], pairs: Iterable[Pair]) -> None:
    for name, value in pairs:
        if into.setdefault(name, value) != value:
            raise UserError(f"{name} is given twice: {into[name]!r} and {value!r}")


def _kind(text: str) -> tuple[Kind, str]:
    for kind in _PREFIXED:
        if text.startswith(f"{kind}:"):
            return kind, text.removeprefix(f"{kind}:")
    if other := re.match(r"([a-z][a-z0-9-]*):(?!/)", text):
        own = settings.load().kernels
        if other[1] not in own:
            raise _unknown(other[1], own)
        return other[1], text.removeprefix(other[0])
    return "rev", text


_SERIES = "dir"
_FOREIGN = {
    *("rpm", "dnf", "yum", "pacman", "pkg", "alpm", "apk", "tar", "url", "mainline"),
    *("ubuntu", "fedora", "arch", "archlinux", "suse", "opensuse", "centos", "rhel", "rocky", "alma"),
}
"""Words that people expect for packages of other distributions than Debian."""


def _unknown(word: str, own: Iterable[str]) -> UserError:
    kinds = [f"{kind}:" for kind in (*_PREFIXED[:-1], *own)]
    if word == _SERIES:
        hint: str | None = "dir:PATH/*.rpm is a series, for `lab bisect --series`; one kernel of it is file:PATH"
    elif word in _FOREIGN:
        hint = (
            "give the package as file:PATH.rpm (.deb, .pkg.tar.zst) or https://ADDRESS#sha256=HEX; for "
            f'{word}:VERSION, name its address: [kernels] {word} = "https://.../{{version}}..." in {settings.file()}'
        )
    else:
        hint = suggestion(f"{word}:", kinds) or f"there is {', '.join(kinds)}; a revision has no prefix"
    return UserError(f"no kind of kernel is called '{word}:'", hint=hint)


def _split_patches(kind: Kind, text: str) -> tuple[str, tuple[str, ...]]:
    """Cut patches off from the right."""
    names: list[str] = []
    while not (kind in _PATHS and paths.expanded(text).exists()):
        cut = _last_patch(text, may_be_file=kind in _BUILT)
        if cut is None:
            break
        names.insert(0, text[cut + 1 :])
        text = text[:cut]
    return text, tuple(names)


def _last_patch(text: str, *, may_be_file: bool) -> int | None:
    """The index of the last patch's `+`. An existing file has precedence, since its path may contain a `+`.

    may_be_file: False behind an image, because a file there has modules.
    """
    names = {index: text[index + 1 :] for index in range(len(text) - 1, -1, -1) if text[index] == "+"}
    for index, name in names.items():
        if may_be_file and name and paths.expanded(name).is_file():
            return index
    sets = default_tree.names() if names else []
    return next(
        (
            index
            for index, name in names.items()
            if name in sets or patches.is_name(name) or layout.number_of(name) is not None
        ),
        None,
    )


def _symbol(part: str) -> Pair:
    """Check one kconfig change."""
    name, _, value = part.partition("=")
    if name == "config":
        if not value or value.removesuffix(":") in PACKAGED:
            raise UserError(
                f"config={value}: a configuration is that of a file or a package",
                hint="write e.g. %config=my.config or %config=deb:trixie/6.12, or for a src: tree %config=distro",
            )
        return name, value
    if name == "arch":
        return name, architecture.load(value).name
    name = name.removeprefix("CONFIG_")
    if not re.fullmatch(r"[A-Z0-9][A-Za-z0-9_]*", name):
        raise UserError(f"{name!r} is not the name of a kconfig symbol", hint=f"did you mean {name.upper()}?")
    if not re.fullmatch(r'[ynm]|-?\d+|0[xX][0-9a-fA-F]+|"[^"\\]*"', value):
        raise UserError(
            f"CONFIG_{name}={value}: not a kconfig value",
            hint='use y, n, m, a number, or a "string" in quotes',
        )
    return f"CONFIG_{name}", value


def _setting(part: str) -> Pair:
    """Check one setting, and give it its long name. `sched_feat.NO_X` is short for `sched_feat.X=0`."""
    key, sign, value = part.partition("=")
    if not sign and key.startswith("sched_feat."):
        name = key.removeprefix("sched_feat.")
        key, value = f"sched_feat.{name.removeprefix('NO_')}", "0" if name.startswith("NO_") else "1"
    elif not sign and not key.startswith("cmdline."):
        raise UserError(f"{key} has no value", hint=f"write {key}=VALUE")
    check_setting(key, value)
    return _SHORT.get(key, key), value


def check_setting(key: str, value: str) -> None:
    """Refuse an unknown setting, and a value that a setting cannot have."""
    group, dot, name = key.partition(".")
    check = _FIXED.get(key) or (_OPEN.get(group + dot) if name else None)
    if check is None and (key in ("arch", "config") or key.startswith("CONFIG_")):
        hint = f"it is the kernel's: write REV%{key}={value}{f', or deb:6.12:{value}' * (key == 'arch')}"
        raise UserError(f"{key} is no setting of a guest", hint=hint)
    if check is None:
        known = [*_FIXED, *(f"{group}NAME" for group in _OPEN)]
        close = suggestion(key, [*known, "sysctl", "cmdline", "env"])
        parameter = "" if dot else f"a kernel parameter is cmdline.{key}; "
        hint = f"{f'{close} The' if close else f'{parameter}the'} settings are {', '.join(known)}"
        raise UserError(f"unknown setting {key!r}", hint=hint)
    check(key, value)


def _one_of(*choices: str) -> Check:
    def check(key: str, value: str) -> None:
        if value not in choices:
            raise UserError(f"{key}={value}: not a value of {key}", hint=f"use one of {', '.join(choices)}")

    return check


def _like(pattern: str, hint: str, what: str = "a value of {}") -> Check:
    def check(key: str, value: str) -> None:
        if not re.fullmatch(pattern, value):
            raise UserError(f"{key}={value}: not {what.format(key)}", hint=hint)

    return check


def _named(no_name: str, what: str, hint: str) -> Check:
    """A setting with any value. no_name: a pattern in what comes behind the first dot of its key, if that is wrong."""

    def check(key: str, value: str) -> None:
        if not value.strip():
            raise UserError(f"{key}= has no value")
        if re.search(no_name, key.partition(".")[2]):
            raise UserError(f"{key!r} is not the name of {what}", hint=hint)

    return check


def _cmdline(key: str, value: str) -> None:
    if re.search(r"[\s\"']", value):
        raise UserError(f"{key}={value!r}: one kernel parameter has no spaces or quotes", hint="give each by itself")


def _env(key: str, value: str) -> None:
    name = key.removeprefix("env.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UserError(f"{name!r} is not the name of an environment variable", hint="e.g. env.MALLOC_ARENA_MAX=1")
    if name.startswith("LAB_"):
        raise UserError(f"{key}: names that begin with LAB_ are the lab's own")


def _feature(key: str, value: str) -> None:
    name = key.removeprefix("sched_feat.")
    if name.startswith("NO_"):
        raise UserError(f"{key}={value}: a feature is off by its value", hint=f"use sched_feat.{name[3:]}=0 or =1")
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        raise UserError(f"{name!r} is not the name of a scheduler's feature", hint="e.g. sched_feat.DELAY_DEQUEUE=0")
    _one_of("0", "1")(key, value)


def _folio(key: str, value: str) -> None:
    """The sizes of folios are powers of two between a page and a huge page of the largest kind."""
    match = re.fullmatch(r"mthp\.([1-9]\d{0,5})([km])", key)
    if match is None or int(match[1]) & (int(match[1]) - 1):
        raise UserError(f"{key!r} is no size of folios", hint="e.g. mthp.64k=always, or mthp.2m=never")
    _one_of(*_THP, "inherit")(key, value)


def _cgroup(key: str, value: str) -> None:
    name = key.removeprefix("cgroup.")
    if not value.strip():
        raise UserError(f"{key}= has no value")
    if name.startswith("cgroup.") or not re.fullmatch(r"[a-z]+(\.[A-Za-z0-9_]+)+", name):
        raise UserError(
            f"{name!r} is not the name of a file of a cgroup v2 controller",
            hint="e.g. cgroup.memory.max=64M, or cgroup.cpu.max=50000 100000",
        )


Check = Callable[[str, str], None]
MOUNT = "mount.fs"
"""The setting of the file system at /tmp."""

_FIXED: dict[str, Check] = {
    "thp": _one_of(*_THP),
    "thp.defrag": _one_of(*_DEFRAG),
    "hugepages": _like("[0-9]+", "use a whole number, 0 or more"),
    "lru_gen": _like("[0-9]+", "use a whole number, 0 or more"),
    "lsm": _like("[a-z0-9_-]+(,[a-z0-9_-]+)*", "e.g. lsm=landlock,lockdown", "a list of security modules"),
    # Since v6.17, `;no_...` leaves out some.
    "mitigations": _like(
        "off|auto(,nosmt)?([;,]no_[a-z_]+)*",
        "use off, auto, auto,nosmt, or from v6.17 on auto;no_user_kernel and the like",
    ),
    MOUNT: _one_of("btrfs", "ext4", "tmpfs", "xfs"),
}
_OPEN: dict[str, Check] = {
    "sysctl.": _named(r"(^|[./])\.*([./]|$)", "a sysctl", "write it like sysctl.vm.swappiness=1"),
    "cmdline.": _cmdline,
    "env.": _env,
    "sched_feat.": _feature,
    "debugfs.": _named(
        r"(^|/)\.*(/|$)",
        "a file below /sys/kernel/debug",
        "write it like debugfs.sched/base_slice_ns=3000000",
    ),
    "cgroup.": _cgroup,
    "mthp.": _folio,
}
READ_BACK = tuple(_SHORT.values())
"""Parameters of the kernel command line whose effect the guest reads back."""
