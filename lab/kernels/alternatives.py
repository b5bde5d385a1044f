"""The places where a kernel has other instructions for a CPU with a feature, and the features by their numbers.

A kernel replaces instructions when it boots (alternatives), and takes the branches of `static_cpu_has` for good; both
are in the section .altinstructions, as `struct alt_instr` (arch/x86/include/asm/alternative.h):

    up to 5.12  instruction, replacement (relative), u16 feature, u8 length, u8 replacement's length, u8 padding
    up to 6.2   the same without padding; the feature's highest bit inverts it
    from 6.3 u16 flags behind the feature; the lowest bit inverts it

A feature is a bit of a word (arch/x86/include/asm/cpufeatures.h). Most words are a register of CPUID, which never
changes; Linux numbers the others itself, differently in each version, and sets them by rules of its own.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from lab.core.records import Record
from lab.kernels import files
from lab.kernels.files import Buffer, KernelFiles
from lab.kernels.symbols import SymbolTable, base_name, kernel_symbols

SECTION = b".altinstructions"

CPUID_WORDS: Mapping[int, tuple[int, int, str]] = {
    0: (1, 0, "EDX"),
    1: (0x80000001, 0, "EDX"),
    4: (1, 0, "ECX"),
    6: (0x80000001, 0, "ECX"),
    9: (7, 0, "EBX"),
    10: (0xD, 1, "EAX"),
    12: (7, 1, "EAX"),
    13: (0x80000008, 0, "EBX"),
    14: (6, 0, "EAX"),
    15: (0x8000000A, 0, "EDX"),
    16: (7, 0, "ECX"),
    17: (0x80000007, 0, "EBX"),
    18: (7, 0, "EDX"),
    19: (0x8000001F, 0, "EAX"),
    20: (0x80000021, 0, "EAX"),
}
"""The words of features that are registers of CPUID: leaf, subleaf, register."""

# As in /proc/cpuinfo, or else as the kernel's source calls them; from bit 0 on, - for a bit without a name.
_NAMES = {
    0: (
        "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 pn clflush - dts acpi mmx fxsr "
        "sse sse2 ss ht tm ia64 pbe"
    ),
    1: ("- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - fxsr_opt pdpe1gb rdtscp - lm 3dnowext 3dnow"),
    4: (
        "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma cx16 xtpr pdcm - pcid dca sse4_1 "
        "sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave osxsave avx f16c rdrand hypervisor"
    ),
    6: (
        "lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit wdt - "
        "lwp fma4 tce - nodeid_msr - tbm topoext perfctr_core perfctr_nb - bpext ptsc perfctr_llc mwaitx"
    ),
    9: (
        "fsgsbase tsc_adjust sgx bmi1 hle avx2 fdp_excptn_only smep bmi2 erms invpcid rtm cqm zero_fcs_fds mpx "
        "rdt_a avx512f avx512dq rdseed adx smap avx512ifma - clflushopt clwb intel_pt avx512pf avx512er avx512cd "
        "sha_ni avx512bw avx512vl"
    ),
    10: "xsaveopt xsavec xgetbv1 xsaves xfd",
    12: (
        "- - - - avx_vnni avx512_bf16 lass cmpccxadd arch_perfmon_ext - fzrm fsrs fsrc - - - - fred lkgs wrmsrns - "
        "amx_fp16 - avx_ifma - - lam"
    ),
    13: (
        "clzero irperf xsaveerptr invlpgb rdpru - - - - wbnoinvd - - amd_ibpb - amd_ibrs amd_stibp - "
        "amd_stibp_always_on - - - - - amd_ppin amd_ssbd virt_ssbd amd_ssb_no cppc amd_psfd btc_no amd_ibpb_ret "
        "brs"
    ),
    14: (
        "dtherm ida arat - pln - pts hwp hwp_notify hwp_act_window hwp_epp hwp_pkg_req - - - "
        "hwp_highest_perf_change - - - hfi"
    ),
    16: (
        "- avx512vbmi umip pku ospke waitpkg avx512_vbmi2 shstk gfni vaes vpclmulqdq avx512_vnni avx512_bitalg tme "
        "avx512_vpopcntdq - la57 - - - - - rdpid - bus_lock_detect cldemote - movdiri movdir64b enqcmd sgx_lc"
    ),
    17: "overflow_recov succor - smca",
    18: (
        "- - avx512_4vnniw avx512_4fmaps fsrm uintr - - avx512_vp2intersect srbds_ctrl md_clear rtm_always_abort - "
        "tsx_force_abort serialize hybrid_cpu tsxldtrk - pconfig arch_lbr ibt - amx_bf16 avx512_fp16 amx_tile "
        "amx_int8 spec_ctrl intel_stibp flush_l1d arch_capabilities core_capabilities spec_ctrl_ssbd"
    ),
    19: (
        "sme sev vm_page_flush sev_es sev_snp - - - - v_tsc_aux sme_coherent - - - debug_swap - - - - - - - - - - "
        "- - - svsm - hv_inuse_wr_allowed"
    ),
    20: (
        "no_nested_data_bp wrmsr_xx_base_ns lfence_rdtsc - - verw_clear null_sel_clr_base - autoibrs "
        "no_smm_ctl_msr - - - - - - - - - - - - - - - - - sbpb ibpb_brtype srso_no srso_user_kernel_no "
        "srso_bp_spec_reduce"
    ),
}

# Bits that the kernel sets for itself if another one is there: it has switched the feature on.
_FOLLOWS = {"osxsave": "xsave", "ospke": "pku"}


# The forms of `struct alt_instr`, as struct has them; True for flags behind the feature.
_LAYOUTS = {"<iiHBB": False, "<iiHHBB": True, "<iiHBBB": False}
_INVERTED, _FLAG_INVERTED = 0x8000, 1
_MOST_FEATURES, _MOST_FLAGS = 64 * 32, 16

_MOST = 8
"""Functions that are named of each feature."""


class Alternative(NamedTuple):
    """Instructions that a kernel replaces for a feature, or for its lack. address: that of the first."""

    address: int
    word: int
    bit: int
    inverted: bool = False


def name_of(word: int, bit: int) -> str:
    """A feature's name; that of its register in CPUID if it has none."""
    name = _NAMES.get(word, "").split()[bit : bit + 1]
    if name and name != ["-"]:
        return name[0]
    leaf, subleaf, register = CPUID_WORDS[word]
    return f"cpuid:{leaf:x}:{subleaf}:{register.lower()}:{bit}"


def names() -> frozenset[str]:
    """The names of all features that have one."""
    return frozenset(name for text in _NAMES.values() for name in text.split()) - {"-"}


def features(words: Mapping[tuple[int, int, str], int]) -> frozenset[str]:
    """The features of a CPU, by its registers of CPUID: leaf, subleaf, register."""
    found = {
        name_of(word, bit)
        for word, register in CPUID_WORDS.items()
        for bit in range(32)
        if words.get(register, 0) >> bit & 1
    }
    return frozenset(found | {name for name, other in _FOLLOWS.items() if other in found})


# ---- a kernel's table


def read(image: Buffer) -> list[Alternative]:
    """The alternatives of an uncompressed kernel; none if it has no such table."""
    for name, address, offset, size in _sections(image):
        if name == SECTION:
            return parse(image[offset : offset + size], address)
    return []


def parse(table: bytes, address: int) -> list[Alternative]:
    """The alternatives of a table that is loaded at an address; none if it has no known layout."""
    for form, has_flags in _LAYOUTS.items():
        size = struct.calcsize(form)
        if table and len(table) % size == 0:
            rows = struct.iter_unpack(form, table)
            found = [_alternative(row, address + number * size, has_flags) for number, row in enumerate(rows)]
            if all(found):
                return [one for one in found if one]
    return []


def _alternative(row: tuple[int, ...], at: int, has_flags: bool) -> Alternative | None:
    """A row of the table; None if it cannot be one: a replacement is never longer than the replaced code."""
    instruction, _, feature, *rest = row
    flags = rest.pop(0) if has_flags else 0
    length, replacement = rest[:2]
    inverted = bool(flags & _FLAG_INVERTED or feature & _INVERTED)
    feature &= ~_INVERTED
    if not 0 < length >= replacement or feature >= _MOST_FEATURES or flags >= _MOST_FLAGS:
        return None
    return Alternative((at + instruction) & 0xFFFF_FFFF_FFFF_FFFF, feature // 32, feature % 32, inverted)


def _sections(image: Buffer) -> Iterator[tuple[bytes, int, int, int]]:
    """Name, address, offset and size of each ELF section. Kernels keep the headers when they are stripped."""
    if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
        return
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)
    if not count or size < 64 or table + count * size > len(image) or names_at >= count:
        return
    headers = [struct.unpack_from("<IIQQQQ", image, table + number * size) for number in range(count)]
    start = headers[names_at][4]
    for name, _kind, _flags, address, offset, length in headers:
        end = image.find(b"\0", start + name)
        yield image[start + name : end], address, offset, length


# ---- two kernels on a CPU


class FeatureChoice(Record, frozen=True, kw_only=True):
    """A feature that one of the kernels looks for.

    modelled, guest: whether the modelled CPU and the guest's have it. base, test: how many places of the kernel look.
    functions: their functions, the most expensive first. only_base, only_test: the functions of one arm alone. ran: the
    functions that ran in the compared case.
    """

    feature: str
    modelled: bool
    guest: bool
    base: int = 0
    test: int = 0
    functions: list[str] = msgspec.field(default_factory=list)
    only_base: list[str] = msgspec.field(default_factory=list)
    only_test: list[str] = msgspec.field(default_factory=list)
    ran: list[str] = msgspec.field(default_factory=list)

    @property
    def differs(self) -> bool:
        """True if one kernel looks for the feature in functions that are not among the other's."""
        return bool(self.only_base or self.only_test)


class CpuChoices(Record, frozen=True, kw_only=True):
    """`lab explain --cpu --json`: the CPU of a guest, and the features that kernels look for.

    cpu: QEMU's `-cpu`. features: of the guest. lacks: of the modelled CPU, which QEMU's TCG does not have. off: of it,
    and left off, with the reason. refused: in `cpu`, and not in this QEMU. base, test: the kernels. case: whose
    functions are known to have run.
    """

    schema: str = "lab.explain-cpu/1"
    machine: str
    cpu: str
    qemu: str
    features: list[str]
    lacks: list[str]
    off: dict[str, str]
    refused: list[str]
    base: str | None = None
    test: str | None = None
    case: str | None = None
    choices: list[FeatureChoice] = msgspec.field(default_factory=list)


class KernelTable(NamedTuple):
    """A kernel's alternatives, and its functions."""

    alternatives: Sequence[Alternative]
    symbols: SymbolTable

    def by_feature(self) -> dict[str, list[str]]:
        """The function of each place that looks for a feature of CPUID, by feature."""
        found: dict[str, list[str]] = {}
        for one in self.alternatives:
            if one.word in CPUID_WORDS:
                symbol = self.symbols.find(one.address)
                name = base_name(symbol.name) if symbol else "[unknown]"
                found.setdefault(name_of(one.word, one.bit), []).append(name)
        return found


def of_kernel(kernel: KernelFiles) -> KernelTable:
    """The alternatives and functions of a kernel; `UserError` if it has neither."""
    image = kernel.vmlinux or kernel.bzimage
    if image is None:
        raise ValueError(f"{kernel.release} has no image")
    return KernelTable(read(files.extract_vmlinux(image)), kernel_symbols(image, kernel.symbols))


def choices(
    kernels: Sequence[KernelTable],
    guest: Collection[str],
    modelled: Collection[str],
    cost: Mapping[str, int] | None = None,
) -> list[FeatureChoice]:
    """The features that a kernel or two look for; first come those that the modelled CPU has and the guest lacks.

    Among these, those come first that only one kernel looks for, then those that the kernels look for in different
    functions. cost: of functions in the compared case.
    """
    tables = [kernel.by_feature() for kernel in kernels]
    base, test = tables[0], tables[-1]
    spent = cost or {}

    def rank(feature: str) -> tuple[int, bool, int, float, str]:
        missing = feature in modelled and feature not in guest
        one, other = set(base.get(feature, ())), set(test.get(feature, ()))
        apart, every = one ^ other, one | other
        executed = sum(spent.get(name, 0) for name in apart)
        kind = 0 if missing else 1 if feature in guest else 2
        return kind, bool(one) == bool(other), -executed, -len(apart) / len(every), feature

    def row(feature: str) -> FeatureChoice:
        here, there = base.get(feature, []), test.get(feature, [])
        places = Counter([*here, *there])

        def first(functions: Iterable[str]) -> list[str]:
            return sorted(functions, key=lambda name: (-spent.get(name, 0), -places[name], name))[:_MOST]

        return FeatureChoice(
            feature=feature,
            modelled=feature in modelled,
            guest=feature in guest,
            base=len(here),
            test=len(there),
            functions=first(set(here) & set(there)),
            only_base=first(set(here) - set(there)),
            only_test=first(set(there) - set(here)),
            ran=[name for name in sorted(places) if name in spent],
        )

    return [row(feature) for feature in sorted(base.keys() | test.keys(), key=rank)]
