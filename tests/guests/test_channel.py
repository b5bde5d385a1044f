"""The channel: jobs that a guest can read, and reports that are cut anywhere."""

import json
from collections.abc import Mapping

import pytest

from lab.core.errors import GuestFailed, UserError
from lab.guests import channel

HELLO = {"t": "hello", "release": "6.12.1", "clocksource": "tsc", "mem_kb": 700000, "cmdline": "quiet", "cpus": 1}
METRICS = '{"metrics":{"throughput":12.5,"ops":4}}'


def begin(case: str) -> dict[str, object]:
    return {"t": "begin", "case": case, "now_ns": 1000}


def out(case: str, line: str, **more: bool) -> dict[str, object]:
    return {"t": "out", "case": case, "line": line, **more}


def end(case: str, **how: int) -> dict[str, object]:
    return {"t": "end", "case": case, "now_ns": 2000, "status": 0, "signal": 0, "oom_kills": 0, **how}


def report(*records: Mapping[str, object], done: bool = True) -> bytes:
    lines = [json.dumps(record) for record in records]
    if done:
        lines.append(json.dumps({"t": "done", "lines": len(lines)}))
    return "".join(f"{line}\n" for line in lines).encode()


WHOLE = report(
    HELLO, {"t": "setting", "name": "thp", "value": "always"}, begin("one"), out("one", "hello"), out("one", METRICS),
    {"t": "err", "case": "one", "line": "a warning"}, {"t": "vmstat", "case": "one", "delta": {"pgfault": 7}},
    {"t": "vmstat", "case": "one", "delta": {"nr_free_pages": -3}}, end("one"),
    begin("two"), end("two", status=137, signal=9, oom_kills=1),
)  # fmt: skip


def test_a_whole_report_is_read_in_full() -> None:
    read = channel.parse(WHOLE)
    assert read.complete and read.settings == {"thp": "always"}
    assert read.hello and read.hello.release == "6.12.1"
    one, two = read.cases
    assert METRICS in one.stdout and one.metrics == {}, "lab.guests.output reads them, knowing the workload"
    assert (one.stdout, one.stderr) == (["hello", METRICS], ["a warning"])
    assert one.vmstat == {"pgfault": 7, "nr_free_pages": -3}
    assert (one.status, one.signal, one.ended, one.begin_ns, one.end_ns) == (0, 0, True, 1000, 2000)
    assert (two.status, two.signal, two.oom_kills, two.metrics) == (137, 9, 1, {})
    assert read.case("two") is two and read.case("three") is None


def test_a_report_cut_at_any_byte_is_read_and_never_called_complete() -> None:
    for length in range(len(WHOLE)):
        read = channel.parse(WHOLE[:length])
        assert not read.complete and len(read.cases) <= 2
    lines = WHOLE.splitlines(keepends=True)
    assert not channel.parse(b"".join(lines[:3] + lines[4:])).complete, "a line is missing"
    (lost,) = channel.parse(b"".join(lines[:5])).cases
    assert (lost.ended, lost.status) == (False, None)


def test_long_lines_are_joined_again() -> None:
    parts = [out("one", METRICS[:9], more=True), out("one", METRICS[9:20], more=True), out("one", METRICS[20:])]
    read = channel.parse(report(begin("one"), *parts, end("one")))
    assert read.cases[0].stdout == [METRICS]


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n", b"\x00\xff\xfe\n" + WHOLE, b"{}\n", b'{"t":"unheard-of"}\n', b'{"t":"done","lines":"many"}\n',
        b"[" * 100_000 + b"\n", b"\n\n", WHOLE + WHOLE, report(end("never begun")),
        report(begin("one"), out("two", "x")), report(begin("one"), end("one"), out("one", "too late")),
    ],
)  # fmt: skip
def test_garbage_is_malformed(content: bytes) -> None:
    with pytest.raises(GuestFailed) as caught:
        channel.parse(content)
    assert caught.value.kind == "malformed" and len(caught.value.message) < 400


def test_a_job_lists_settings_and_the_environment() -> None:
    job = channel.encode_job(settings={"thp": "always", "sysctl.net.ipv4.tcp_rmem": "1 2 3"}, env={"A": "b=c"})
    assert job == (b"set\tthp\talways\nset\tsysctl.net.ipv4.tcp_rmem\t1 2 3\nenv\tA=b=c\n")
    cases = channel.encode_cases(7, [("one", ["/bin/x", "--case", "one"])])
    assert cases == b"seed\t7\ncase\tone\t/bin/x\t--case\tone\n"


@pytest.mark.parametrize("bad", ["a\tb", "a\nb", "a\0b"])
def test_a_job_refuses_what_it_cannot_carry(bad: str) -> None:
    for name, word in (("one", bad), (bad, "word")):
        with pytest.raises(UserError):
            channel.encode_cases(1, [(name, ["/bin/x", word])])
    for fields in ({"settings": {"thp": bad}}, {"env": {"A": bad}}):
        with pytest.raises(UserError):
            channel.encode_job(**fields)
