"""Whatever is typed, and whatever a guest says, is understood or refused in the lab's words."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from lab.core.errors import GuestFailed, UserError
from lab.guests import channel
from lab.kernels import kconfig, spec
from lab.workloads import parsers
from lab.workloads.parsers import Unparsable

from .conftest import Tally
from .damages import SEED

FUZZ = settings(max_examples=200, deadline=timedelta(seconds=10), database=None, suppress_health_check=[*HealthCheck])


def explore(tally: Tally, reader: str, check: Callable[..., None], *values: st.SearchStrategy[Any]) -> None:
    """Give a reader made-up values until the time of the test is over, or until it breaks."""

    def once(found: tuple[object, ...]) -> None:
        tally.inputs[reader] += 1
        check(*found)

    for number in tally.goes_on():
        try:
            seed(f"{SEED} {reader} {number}")(FUZZ(given(st.tuples(*values))(once)))()
        except Exception:
            tally.found.append((reader, f"seed {SEED}: {traceback.format_exc()}"))
            return


WORDS = st.text(max_size=40)
SPECS = st.lists(
    st.one_of(
        WORDS,
        st.sampled_from([
            "v6.12", "HEAD", "worktree", "worktree:", "deb:", "src:", "file:", "6.1", "+", "fix.patch", "layout-2", "@",
            "%", "thp", "=", ",", "never", "CONFIG_X", "y", "sysctl.", "sched_feat.", "NO_A", "cmdline.", "env.", "/",
            "~", "@thp=always", "%CONFIG_A=y", "^", "@{1}", "^{/x}", "..", "lsm=", "mitigations=off",
        ]),
    ),
    max_size=8,
).map("".join)  # fmt: skip
NUMBERS = st.one_of(st.integers(), st.integers(min_value=10**300, max_value=10**310), st.floats(), st.booleans(), WORDS)
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)


def test_a_spec_is_parsed_or_refused(tally: Tally) -> None:
    def check(text: str) -> None:
        with suppress(UserError):
            parsed = spec.parse(text)
            assert parsed.body and spec.parse(parsed.text) == parsed

    explore(tally, "kernel spec", check, SPECS)


def test_a_fragment_is_always_read(tally: Tally) -> None:
    def check(text: str) -> None:
        assert all(name.startswith("CONFIG_") for name in kconfig.parse(text))

    explore(tally, "kconfig fragment", check, st.text(max_size=400))


FIO = st.fixed_dictionaries(
    {"jobs": st.one_of(VALUES, st.lists(st.fixed_dictionaries({"ctx": VALUES}, optional={
        "read": VALUES, "error": VALUES, "jobname": VALUES, "write": st.fixed_dictionaries({
            "total_ios": NUMBERS, "io_bytes": NUMBERS, "iops": NUMBERS, "bw_bytes": NUMBERS, "lat_ns": VALUES,
            "clat_ns": st.fixed_dictionaries({"mean": NUMBERS, "percentile": VALUES}),
        }),
    }), max_size=2))},
    optional={"fio version": VALUES},
)  # fmt: skip


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, msgspec.EncodeError, UnicodeError):  # what JSON cannot say
        return "{}"


def test_fio_is_read_or_refused(tally: Tally) -> None:
    def check(values: object) -> None:
        with suppress(Unparsable):
            document = parsers.read_fio([_json(values)])
            for path in ("total.ios", "total.clat_p50", "jobs.0.write.iops", "fio version"):
                with suppress(Unparsable):
                    document.number(path)

    explore(tally, "fio output", check, FIO)


def test_stress_ng_is_read_or_refused(tally: Tally) -> None:
    def check(metrics: str, more: list[str]) -> None:
        with suppress(Unparsable):
            parsers.read_stress_ng(["---", *more, f"metrics: {metrics}", "..."]).number("bogo-ops")

    explore(tally, "stress-ng output", check, st.one_of(VALUES.map(_json), WORDS), st.lists(WORDS, max_size=5))


def test_json_lines_are_read_or_refused(tally: Tally) -> None:
    def check(metrics: dict[str, object], series: object) -> None:
        lines = [_json({"metrics": metrics, "series": series})]
        with suppress(Unparsable):
            document = parsers.read_json_lines(lines)
            for name in metrics:
                with suppress(Unparsable):
                    document.number(name)
        with suppress(Unparsable):
            parsers.read_series(lines)

    explore(
        tally,
        "program output (JSON lines)",
        check,
        st.dictionaries(WORDS, VALUES, max_size=4),
        st.one_of(VALUES, st.dictionaries(WORDS, VALUES, max_size=3)),
    )


FIELDS = ("case", "now_ns", "line", "more", "delta", "status", "signal", "usage", "lines", "error")
RECORD = st.builds(
    lambda kind, fields: {"t": kind, **fields},
    st.sampled_from(["hello", "setting", "begin", "out", "err", "vmstat", "end", "fatal", "done", "refused", "x"]),
    st.dictionaries(st.sampled_from(FIELDS), VALUES),
)


def test_a_guests_report_is_read_or_refused(tally: Tally) -> None:
    def check(content: bytes) -> None:
        with suppress(GuestFailed):
            channel.parse(content)

    explore(
        tally,
        "report of a guest",
        check,
        st.lists(st.one_of(RECORD.map(_json).map(str.encode), st.binary(max_size=60)), max_size=8).map(b"\n".join),
    )
