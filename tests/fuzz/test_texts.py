"""Whatever is typed, and whatever a guest says, is understood or refused in the lab's words."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.core.errors import GuestFailed, UserError
from lab.guests import channel
from lab.kernels import kconfig, spec
from lab.workloads import parsers
from lab.workloads.parsers import Unparsable

EXAMPLES = int(float(os.environ.get("LAB_FUZZ_S", "15")) * 20)
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=timedelta(seconds=10),
    database=None,
    suppress_health_check=[*HealthCheck],
    derandomize="LAB_FUZZ_SEED" not in os.environ,
)

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


@FUZZ
@given(SPECS)
def test_a_spec_is_parsed_or_refused(text: str) -> None:
    with suppress(UserError):
        parsed = spec.parse(text)
        assert parsed.body and spec.parse(parsed.text) == parsed


@FUZZ
@given(st.text(max_size=400))
def test_a_fragment_is_always_read(text: str) -> None:
    assert all(name.startswith("CONFIG_") for name in kconfig.parse(text))


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


@FUZZ
@given(FIO)
def test_fio_is_read_or_refused(values: object) -> None:
    with suppress(Unparsable):
        document = parsers.read_fio([_json(values)])
        for path in ("total.ios", "total.clat_p50", "jobs.0.write.iops", "fio version"):
            with suppress(Unparsable):
                document.number(path)


@FUZZ
@given(st.one_of(VALUES.map(_json), WORDS), st.lists(WORDS, max_size=5))
def test_stress_ng_is_read_or_refused(metrics: str, more: list[str]) -> None:
    with suppress(Unparsable):
        parsers.read_stress_ng(["---", *more, f"metrics: {metrics}", "..."]).number("bogo-ops")


@FUZZ
@given(st.dictionaries(WORDS, VALUES, max_size=4), st.one_of(VALUES, st.dictionaries(WORDS, VALUES, max_size=3)))
def test_json_lines_are_read_or_refused(metrics: dict[str, object], series: object) -> None:
    lines = [_json({"metrics": metrics, "series": series})]
    with suppress(Unparsable):
        document = parsers.read_json_lines(lines)
        for name in metrics:
            with suppress(Unparsable):
                document.number(name)
    with suppress(Unparsable):
        parsers.read_series(lines)


FIELDS = ("case", "now_ns", "line", "more", "delta", "status", "signal", "usage", "lines", "error")
RECORD = st.builds(
    lambda kind, fields: {"t": kind, **fields},
    st.sampled_from(["hello", "setting", "begin", "out", "err", "vmstat", "end", "fatal", "done", "refused", "x"]),
    st.dictionaries(
        st.sampled_from(["case", "now_ns", "line", "more", "delta", "status", "signal", "usage", "lines", "error"]),
        VALUES,
    ),
)


@FUZZ
@given(st.lists(st.one_of(RECORD.map(_json).map(str.encode), st.binary(max_size=60)), max_size=8).map(b"\n".join))
def test_a_guests_report_is_read_or_refused(content: bytes) -> None:
    with suppress(GuestFailed):
        channel.parse(content)
