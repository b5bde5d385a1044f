"""This host as a modelled machine: the values of a machine file, fitted to samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from lab.guests.hardware import (
    Array,
    Cache,
    Caches,
    Clock,
    Coherence,
    Cost,
    Costs,
    Divisor,
    Flush,
    Guest,
    Host,
    Machine,
    Number,
    Overlap,
    Prefetch,
    Reading,
    Tlb,
)
from lab.guests.native import Samples
from lab.guests.reach import Reach, TlbFit, Unclear, crossing, fit_strings, fit_tlb

T = TypeVar("T")
V = TypeVar("V", Array, Cache, Divisor, Number, Cost)

_PAGE_KIB = 4

_MIX = "lists, a hash table, a tree, a bitmap and text (machines/measure/mix.c)"

LONG_STRING = 128
"""The bytes from which on the plugin takes a string instruction for a long one (LONG in machines/plugin/access.c)."""

_PRIVILEGED = ("interrupt_flag", "user_access", "swapgs", "cr3", "cr4", "invlpg", "msr")

_CALIBRATED = ("syscall", "exception")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The machine of this host, the facts about it, and the costs that could not be measured."""

    machine: Machine
    base: Machine
    notes: list[str]


@dataclass(kw_only=True)
class _Fit:
    """The values found so far, by the names of their costs; the others come from the base machine."""

    samples: Samples
    base: Machine
    caches: dict[str, tuple[int, int]]
    costs: dict[str, Cost] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    measured: dict[str, Reading] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def cycles(self, name: str) -> float:
        """A cost as found so far, or that of the base machine."""
        found: Cost = self.costs.get(name) or getattr(self.base.cost, name)
        return found.cycles

    def from_base(self, value: V, reason: str) -> V:
        """A value of the base machine, with the reason in its source."""
        return msgspec.structs.replace(value, source=f"from {self.base.name}: {reason} ({value.source})")

    def cost(self, name: str, cycles: float, words: str, *, estimate: bool = False) -> None:
        self.costs[name] = Cost(cycles=max(0.0, round(cycles, 3)), source=f"measured here: {words}", estimate=estimate)

    def attempt(self, names: Sequence[str], step: Callable[[], T]) -> T | None:
        """Take a step; if the samples do not give it, None, and the named values stay the base machine's."""
        try:
            return step()
        except Unclear as error:
            for name in names:
                self.reasons.setdefault(name, str(error))
            self.notes.append(f"{', '.join(names)}: {error}; taken from {self.base.name}")
            return None

    def keep(self, name: str, reading: Reading) -> None:
        self.measured[name] = Reading(
            value=_rounded(reading.value), low=_rounded(reading.low), high=_rounded(reading.high)
        )


def fit(
    samples: Samples,
    base: Machine,
    *,
    host: Host,
    caches: dict[str, tuple[int, int]],
    guest: Guest | None = None,
    name: str = "measured",
) -> Measurement:
    """The machine file of a host, whose guests have the given CPU; `HostFailed` if its clock is not steady."""
    clock = samples.clock()
    state = _Fit(samples=samples, base=base, caches=caches)
    if (reading_ns := samples.facts.get("clock_reading_ns", 0)) > 300:
        state.notes.append(
            f"reading the clock takes {reading_ns} ns, as it is not the CPU's own: the values scatter more"
        )
    if samples.disturbed > 0.25:
        state.notes.append(
            f"{samples.disturbed:.0%} of all runs were disturbed: other processes, or guests of this host, use the CPU"
        )
    if shared := samples.shared:
        state.notes.append(
            f"another thread used the core nearly all the time, and values may be too high: {', '.join(shared)}"
        )
    small = state.attempt(["stlb_hit", "dtlb_4k", "stlb"], lambda: _small_pages(state))
    huge = state.attempt(["dtlb_2m"], lambda: _huge_pages(state, small))
    state.attempt(["instruction"], lambda: _instruction(state))
    state.attempt(["l2_hit"], lambda: _l2(state))
    state.attempt(["llc_hit"], lambda: _llc(state, small))
    state.attempt(["memory"], lambda: _memory(state))
    state.attempt(["walk_4k", "walk_fetch"], lambda: _walk_4k(state, small))
    state.attempt(["walk_2m"], lambda: _walk_2m(state))
    state.attempt(["prefetched"], lambda: _stream(state))
    state.attempt(["rep_start", "rep_long", "rep_byte", "rep_line", "rep_memory"], lambda: _strings(state))
    _classes(state)
    _kernel(state)
    coherence = state.attempt(["move"], lambda: _move(state))
    if coherence is None and base.coherence:
        coherence = Coherence(move=state.from_base(base.coherence.move, state.reasons["move"]))
    overlap = state.attempt(["overlap"], lambda: _overlap(state))
    flush = _flush(state)
    machine = Machine(
        schema=1,
        name=name,
        description=f"{host.cpu}, as measured on Linux {host.kernel}" + (" in a guest" if host.guest else ""),
        tlb=_tlb_arrays(state, small, huge),
        cache=Caches(**{level: _cache(state, level) for level in Caches.__struct_fields__}),
        prefetch=Prefetch(streams=state.from_base(base.prefetch.streams, "not measured")),
        overlap=Overlap(misses=overlap or state.from_base(base.overlap.misses, state.reasons["overlap"])),
        cost=_all_costs(state),
        clock=Clock(ghz=round(clock.value, 3), source=f"measured here: {clock.low:.3f} to {clock.high:.3f}"),
        host=host,
        measured=state.measured,
        guest=guest,
        flush=flush,
        coherence=coherence,
    )
    return Measurement(machine=machine, base=base, notes=state.notes)


def _near(samples: Samples, name: str, low: float, high: float) -> Reading:
    """The median of a curve between two sizes, and the range there."""
    values = [series.value for x, series in samples.over(name).items() if low <= x <= high]
    if not values:
        raise Unclear("no size was measured that only this level holds")
    return Reading(value=statistics.median(values), low=min(values), high=max(values))


def _bytes_of(state: _Fit, level: str) -> int:
    kib = state.caches[level][0] if level in state.caches else getattr(state.base.cache, level).kib
    return int(kib) * 1024


def _l1(state: _Fit) -> Reading:
    return _near(state.samples, "chase", 0, _bytes_of(state, "l1d") * 0.75)


def _split(state: _Fit, small: TlbFit | None) -> str:
    """The reason why huge pages miss the TLB as small ones do, if they do.

    If the hypervisor maps huge pages by small ones, a chain through more than the first level of the TLB reaches
    takes longer than one within it, in the same cache.
    """
    if state.samples.facts.get("huge_bytes", 0) < state.samples.facts.get("arena_bytes", 1):
        return "huge pages are not available"
    l1d, l2 = _bytes_of(state, "l1d"), _bytes_of(state, "l2")
    reach = (small.first.value if small else state.base.tlb.dtlb_4k.entries) * _PAGE_KIB * 1024
    try:
        within = _near(state.samples, "chase", 2 * l1d, min(reach, l2 / 2) * 0.95).value
        beyond = _near(state.samples, "chase", 1.6 * reach, l2 / 2).value
    except Unclear:
        return ""
    split = beyond - within > 0.2 * state.base.cost.stlb_hit.cycles
    return "the hypervisor maps huge pages by small ones" if split else ""


def _l2(state: _Fit) -> None:
    l1d, l2 = _bytes_of(state, "l1d"), _bytes_of(state, "l2")
    reading, first = _near(state.samples, "chase", 1.9 * l1d, l2 / 4), _l1(state).value
    if reading.value < first + 2:
        raise Unclear("its latency is that of the first level")
    state.keep("l1_cycles", _l1(state))
    state.keep("l2_cycles", reading)
    state.cost(
        "l2_hit", reading.value - first, _words(reading, f"{reading.value:.1f} cycles, less {first:.1f} for L1d")
    )


def _llc(state: _Fit, small: TlbFit | None) -> None:
    l2, llc = _bytes_of(state, "l2"), _bytes_of(state, "llc")
    points = state.samples.over("chase_refilled")
    series = next((series for size, series in points.items() if 4 * l2 <= size <= llc), None)
    if series is None:
        raise Unclear("no size was measured that only this level holds")
    # Chains through huge pages hit the second level of the TLB, if these are split.
    reading, first, extra = (
        series.reading(),
        _l1(state).value,
        state.cycles("stlb_hit") if _split(state, small) else 0.0,
    )
    if reading.high > 2 * reading.value:
        raise Unclear(f"its latency went from {reading.low:.0f} to {reading.high:.0f} cycles: others fill it")
    state.keep("llc_cycles", reading)
    words = f"latency, less {first:.1f} for L1d" + (f" and {extra:.1f} for the TLB" if extra else "")
    state.cost("llc_hit", reading.value - first - extra, _words(reading, words))


def _memory(state: _Fit) -> None:
    points = state.samples.over("chains")
    if 1 not in points:
        raise Unclear("every run was disturbed")
    reading, first = points[1].reading(), _l1(state).value
    if state.samples.facts.get("arena_bytes", 0) // 4 < 2 * _bytes_of(state, "llc"):
        state.notes.append("memory: the last level may hold a part of the measured memory")
    state.keep("memory_cycles", reading)
    state.cost(
        "memory", reading.value - first, _words(reading, f"{reading.value:.0f} cycles, less {first:.1f} for L1d")
    )


def _stream(state: _Fit) -> None:
    # The memory's bandwidth is shared with all others, so the middle one is the usual one.
    reading = state.samples.one("stream").reading(share=0.5)
    state.keep("stream_line_cycles", reading)
    state.cost("prefetched", reading.value, _words(reading, "one load of each line, in order; the median"))


def _instruction(state: _Fit) -> None:
    number = state.samples.facts.get("mix_instructions", 0)
    if number < 1000:
        raise Unclear("instructions could not be counted by single steps")
    reading = state.samples.one("mix").reading(lambda cycles: cycles / number)
    words = f"{_MIX}; no kernel's code, so an estimate"
    state.cost("instruction", reading.value, _words(reading, words), estimate=True)


def _words(reading: Reading, what: str = "") -> str:
    return f"{_short(reading.low)} to {_short(reading.high)}" + (f"; {what}" if what else "")


def _short(value: float) -> str:
    return f"{value:.4g}"


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


# --- TLBs ---


def _tlb_points(samples: Samples, name: str) -> list[tuple[int, float]]:
    """The cost of a page beyond the cache's, by the number of pages."""
    pages, dense = samples.over(name), samples.over(f"{name}_dense")
    return [(x, pages[x].value - dense[x].value) for x in sorted(pages) if x in dense]


def _small_pages(state: _Fit) -> TlbFit:
    # More lines on pages anywhere do not fit L2 well.
    most = 0.33 * _bytes_of(state, "l2") / 64
    found = fit_tlb([(x, value) for x, value in _tlb_points(state.samples, "tlb_4k") if x <= most])
    state.cost("stlb_hit", found.hit, f"pages of 4 KiB, one line of each, from {found.first.high} pages on")
    return found


def _huge_pages(state: _Fit, small: TlbFit | None) -> TlbFit:
    if reason := _split(state, small):
        raise Unclear(reason)
    return fit_tlb(_tlb_points(state.samples, "tlb_2m"))


def _walk_4k(state: _Fit, found: TlbFit | None) -> None:
    if found is None or found.walk is None or found.second is None:
        raise Unclear("the reach of the second-level TLB is unclear")
    fetch = state.cycles("l2_hit")
    state.cost("walk_fetch", fetch, "l2_hit: the entries of so many pages are in L2")
    pages = [series.reading() for x, series in state.samples.over("tlb_4k").items() if x >= found.second.high]
    low, high = (statistics.median(getattr(one, end) / one.value for one in pages) for end in ("low", "high"))
    words = "beyond a second-level hit, less walk_fetch; it depends on the places of page tables"
    state.cost("walk_4k", found.walk - fetch, f"{found.walk * low:.0f} to {found.walk * high:.0f}; {words}")


def _flush(state: _Fit) -> Flush | None:
    """The extent of a flush, by its cost with two numbers of other pages in the TLB."""
    try:
        flush, none = state.samples.over("flush"), state.samples.over("flush_none")
        near, far = sorted(flush.keys() & none.keys())
    except (Unclear, ValueError):
        state.notes.append("flush: every run was disturbed; a page's flush is taken to be of that page alone")
        return None
    page = ((flush[far].value - none[far].value) - (flush[near].value - none[near].value)) / (far - near)
    state.keep("flush_page_cycles", Reading(value=page, low=page, high=page))
    every = page > state.cycles("stlb_hit")
    return Flush(all=every, source=f"measured here: {page:.1f} cycles for each other page that the TLB holds")


def _walk_2m(state: _Fit) -> None:
    reading, first = state.samples.one("conflict_2m").reading(), _l1(state).value
    hit, fetch = state.cycles("stlb_hit"), state.cycles("walk_fetch")
    walk = reading.value - first - hit
    if walk < hit:
        raise Unclear("huge pages that should not fit the TLB do")
    state.cost("walk_2m", walk - fetch, _words(reading, "huge pages of one set, less L1d, stlb_hit and walk_fetch"))


def _tlb_arrays(state: _Fit, small: TlbFit | None, huge: TlbFit | None) -> Tlb:
    base = state.base.tlb
    unclear = state.reasons.get("dtlb_4k", "not measured")
    return Tlb(
        dtlb_4k=_array(state, base.dtlb_4k, small.first if small else None, unclear),
        stlb=_array(state, base.stlb, small.second if small else None, unclear),
        dtlb_2m=base.dtlb_2m
        and _array(state, base.dtlb_2m, huge.first if huge else None, state.reasons.get("dtlb_2m", "not measured")),
        itlb_4k=state.from_base(base.itlb_4k, "not measured"),
        itlb_2m=base.itlb_2m and state.from_base(base.itlb_2m, "not measured"),
        istlb=base.istlb and state.from_base(base.istlb, "not measured"),
    )


def _array(state: _Fit, base: Array, reach: Reach | None, reason: str) -> Array:
    """An array of the base machine's if the measured reach agrees, else one of as many entries as measured."""
    if reach is None:
        return state.from_base(base, reason)
    words = f"measured here: reach between {reach.low} and {reach.high} pages"
    if reach.agrees_with(base.entries):
        return msgspec.structs.replace(
            base, source=f"{words}; entries and ways of {state.base.name}, which agree", estimate=False
        )
    ways = base.ways if base.ways < base.entries else max(1, round(reach.value))
    entries = max(1, round(reach.value / ways)) * ways
    return Array(entries=entries, ways=ways, source=f"{words}; ways of {state.base.name}")


# --- caches ---


def _cache(state: _Fit, level: str) -> Cache:
    """The capacity that CPUID reports, beside the capacity that a chain of loads finds."""
    base: Cache = getattr(state.base.cache, level)
    if level not in state.caches:
        return state.from_base(base, "the kernel does not show what CPUID reports")
    kib, ways = state.caches[level]
    source = f"CPUID: {kib} KiB, {ways} ways"
    if kib * 16 % ways:
        return state.from_base(base, f"CPUID reports {ways} ways of {kib} KiB")
    if level == "l1i":
        return Cache(kib=kib, ways=ways, source=f"{source}; not measured")
    try:
        reach = _capacity(state, level)
    except Unclear:
        source += "; measured here: no clear step"
    else:
        source += f"; measured here: between {reach.low >> 10} and {reach.high >> 10} KiB"
        if reach.high < kib * 1024 * 0.75:
            kept = Reading(value=reach.value / 1024, low=reach.low >> 10, high=reach.high >> 10)
            state.keep(f"{level}_reach_kib", kept)
            state.notes.append(
                f"{level}: a chain of loads stays in it up to {reach.low >> 10} KiB, where CPUID says {kib} KiB: "
                "others use it too, and the file has the rest"
            )
            sets = math.lcm(ways, 16) // 16  # in KiB: the rest has whole sets too
            kib = max(1, round(reach.value / 1024 / sets)) * sets
    return Cache(kib=kib, ways=ways, source=source)


def _capacity(state: _Fit, level: str) -> Reach:
    """The size at which a chain of loads has half left a level for the next one."""
    names = {"l1d": ("l2_hit",), "l2": ("l2_hit", "llc_hit"), "llc": ("llc_hit", "memory")}[level]
    middle = _l1(state).value + sum(map(state.cycles, names)) / 2
    points = [(x, series.value) for x, series in sorted(state.samples.over("chase").items())]
    return crossing(points, middle)


# --- classes of instructions ---


def _classes(state: _Fit) -> None:
    plain = state.cycles("instruction")

    def among(name: str, instructions: int = 1) -> Reading:
        """The cycles that an instruction adds to plain ones around it."""
        nothing = state.samples.one("among_nothing").value
        reading = state.samples.one(f"among_{name}").reading(lambda cycles: (cycles - nothing) / instructions)
        state.keep(f"{name}_cycles", reading)
        return reading

    def atomic() -> None:
        every = sorted((among(name) for name in ("lock_add", "xchg", "cmpxchg")), key=lambda reading: reading.value)
        words = "the middle one of lock add, xchg and lock cmpxchg, on a line in L1d, among plain instructions"
        state.cost("atomic", every[1].value - plain, f"{_short(every[0].low)} to {_short(every[2].high)}; {words}")
        state.keep("lock_add_alone_cycles", state.samples.one("lock_add").reading())
        state.keep("add_to_memory_cycles", state.samples.one("load_add_store").reading())

    def division() -> None:
        reading = state.samples.one("division").reading(lambda cycles: cycles - 1)
        state.keep("division_cycles", reading)
        state.cost("division", reading.value - plain, _words(reading, "div of 64 bits, each waits for the last"))

    def one(cost: str, name: str, number: int, words: str, beside: Sequence[str] = ()) -> None:
        """A cost that one sequence of instructions shows. beside: sequences that are measured for themselves."""
        for other in beside:
            among(other)
        reading = among(name, number)
        state.cost(cost, reading.value - plain, _words(reading, f"{words} among plain instructions"))

    def misprediction() -> None:
        among("retpoline")
        number = state.samples.facts.get("mix_places", 0)
        if not number:
            raise Unclear("not measured")
        without = state.samples.one("mix").value
        reading = state.samples.one("mix_redirected").reading(lambda cycles: (cycles - without) / number)
        words = f"a return that goes elsewhere, and the 3 instructions before it, in {_MIX}"
        state.cost("misprediction", reading.value - 4 * plain, _words(reading, words))

    def segment() -> None:
        among("popf", 2)
        reading = among("segment")
        words = "es from ss, the two moves among plain instructions"
        state.cost("segment", reading.value - 2 * plain, _words(reading, words))

    def alone(name: str, words: str = "") -> None:
        """A cost that its own instruction shows, one after the other."""
        reading = state.samples.one(name).reading()
        state.keep(f"{name}_cycles", reading)
        state.cost(name, reading.value - plain, _words(reading, words))

    def registers() -> None:
        reading = state.samples.one("xsave_xrstor").reading(lambda cycles: cycles / 2)
        words = "half of xsave and xrstor of x87, SSE and AVX"
        state.cost("state", reading.value - plain, _words(reading, words))

    def excess(base: float, share: float, cycles: float) -> float:
        """The cost of an event that a share of the turns has."""
        return (cycles - base) / share

    def misses() -> None:
        for name, share in (("branch", 0.5), ("indirect", 0.75)):
            predicted, random = (state.samples.one(f"{name}_{kind}") for kind in ("predicted", "random"))
            state.keep(f"{name}_miss_cycles", random.reading(partial(excess, predicted.value, share)))

    steps: dict[str, Callable[[], None]] = {
        "atomic": atomic,
        "fence": partial(one, "fence", "lfence", 1, "lfence", beside=("mfence", "sfence")),
        "division": division,
        "pause": partial(alone, "pause"),
        "vector": partial(one, "vector", "vector", 2, "movups from and to L1d,"),
        "indirect_branch": partial(
            one, "indirect_branch", "indirect_branch", 2, "lea and jmp to a register, predicted,"
        ),
        "return_branch": partial(one, "return_branch", "call", 3, "call, ret and jmp, predicted,"),
        "misprediction": misprediction,
        "segment": segment,
        "cpuid": partial(alone, "cpuid", "leaf 0, with a hypervisor's work on it"),
        "time": partial(one, "time", "rdtsc", 1, "rdtsc", beside=["rdtscp"]),
        "state": registers,
    }
    for name, step in steps.items():
        state.attempt([name], step)
    state.attempt(["taken_branch_cycles"], lambda: state.keep("taken_branch_cycles", among("taken_branch")))
    state.attempt(["branch_miss_cycles"], misses)


def _strings(state: _Fit) -> None:
    """Starts of short and long strings, bytes of long ones, and lines that are further away than L1d."""
    plain = state.cycles("instruction")
    near = _bytes_of(state, "l1d") // 4
    short: list[float] = []
    points: list[tuple[int, float]] = []
    lines: list[tuple[float, int, int]] = []
    for name in ("rep_stosb", "rep_stosq", "rep_movsb", "rep_movsq"):
        own = {x: series.value for x, series in state.samples.over(name).items()}
        within = [(x, value) for x, value in sorted(own.items()) if LONG_STRING <= x <= near]
        start, byte = fit_strings(within)
        state.keep(f"{name}_start_cycles", Reading(value=start, low=start, high=start))
        state.keep(f"{name}_byte_cycles", Reading(value=byte, low=byte, high=byte))
        short += [value for x, value in own.items() if x <= LONG_STRING // 2]
        points += within
        far = max(own)
        lines.append((own[far], far, (2 if "movs" in name else 1) * far // 64))
    start, byte = fit_strings(points)
    begin = statistics.median(short)
    off = statistics.median(abs(start + byte * x - y) / y for x, y in points)
    what = "stosb, stosq, movsb and movsq"
    state.cost("rep_start", begin - plain, f"{what} of at most {LONG_STRING // 2} bytes")
    words = f"{what} of {LONG_STRING} to {near} bytes in L1d; half of them within {off:.0%}"
    state.cost("rep_long", start - begin, f"{start:.3g} cycles begin {words}")
    state.cost("rep_byte", byte, words)
    each = [(cycles - start - byte * x) / number for cycles, x, number in lines]
    state.cost("rep_line", statistics.fmean(each), f"{what} of {lines[0][1] // 1024} KiB, in L2, each line beyond that")
    fresh = state.samples.one("rep_fresh_page").reading(share=0.5)
    state.keep("rep_fresh_page_cycles", fresh)
    lines_of_page = _PAGE_KIB * 1024 // 64
    words = f"stosq of a page in no cache, {_words(fresh)}, each line beyond start and bytes"
    state.cost("rep_memory", (fresh.value - start - byte * _PAGE_KIB * 1024) / lines_of_page, words)


def _overlap(state: _Fit) -> Divisor:
    """Misses that overlap if some 40 plain instructions lie between two."""
    cached, waiting, independent = (
        state.samples.one(f"apart_{name}").value for name in ("cached", "waiting", "independent")
    )
    if independent <= cached or waiting <= independent:
        raise Unclear("independent misses take as long as dependent ones")
    value = (waiting - cached) / (independent - cached)
    state.keep("overlap_apart_misses", Reading(value=value, low=value, high=value))
    chains = {x: series.value for x, series in state.samples.over("chains").items()}
    most = max(chains.get(1, 0.0) / value for value in chains.values())
    state.keep("overlap_chains_misses", Reading(value=most, low=most, high=most))
    source = f"measured here: {value:.2f} with 40 plain instructions between two; {most:.1f} with none"
    return Divisor(count=min(64, max(1, round(value))), source=source)


def _kernel(state: _Fit) -> None:
    """Times of the host's kernel: nothing of them is in a cost, they are there to calibrate by."""

    def keep(name: str, series: str, scale: Callable[[float], float] = lambda cycles: cycles) -> None:
        found = state.samples.one(series)
        ghz = statistics.median(found.ghz)
        state.keep(name, found.reading(lambda cycles: scale(cycles) / ghz))

    def switch() -> None:
        alone = state.samples.one("write_read").value
        keep("write_read_ns", "write_read")
        keep("context_switch_ns", "ping_pong", lambda cycles: (cycles - 2 * alone) / 2)

    for name in ("syscall", "getppid", "fault", "populate", "fault_shared", "populate_shared"):
        state.attempt([f"{name}_ns"], partial(keep, f"{name}_ns", name))
    state.attempt(["context_switch_ns"], switch)


def _move(state: _Fit) -> Coherence:
    """A line that two CPUs take from each other, each by a compare-and-exchange that succeeds when it is its turn."""
    found = state.samples.one("move").reading()
    low, high = max(0.0, _rounded(found.low)), _rounded(found.high)
    source = "measured here: a word that two CPUs hand to each other"
    return Coherence(move=Cost(cycles=max(0.0, round(found.value, 3)), low=low, high=high, source=source))


def _all_costs(state: _Fit) -> Costs:
    """Every cost that this lab's machine files have: measured, or the base machine's with the reason."""
    values = {}
    for name in Costs.__struct_fields__:
        base: Cost | None = getattr(state.base.cost, name)
        if name in state.costs:
            values[name] = state.costs[name]
        elif base is not None:
            reason = state.reasons.get(name, "not measured")
            if name in _PRIVILEGED:
                reason = "not measurable from user space"
            elif name in _CALIBRATED:
                reason = "not calibrated from [measured] yet"
            values[name] = state.from_base(base, reason)
    return Costs(**values)
