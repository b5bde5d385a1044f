"""The fingerprints by which workers match a machine."""

import pytest
from msgspec.structs import replace

from lab.cluster import worker
from lab.cluster.worker import Facts
from lab.core.errors import HostFailed
from lab.guests import exact, plugin
from lab.kernels import architecture, compilers

from ..fakes.guest import QEMU

MINE = Facts(lab="a", qemu="7.2.22", parameters="p", plugin="c")


@pytest.mark.parametrize("name", Facts.__struct_fields__)
def test_whatever_differs_makes_another_machine_of_it(name: str) -> None:
    other = replace(MINE, **{name: "other"})
    assert worker.guests_resource(other) != worker.guests_resource(MINE)
    (said,) = MINE.differences(other)
    assert ("(other there, 7.2.22 here)" in said) == (name == "qemu")
    assert MINE.differences(replace(MINE)) == []


def test_this_machine_is_like_itself_and_unlike_one_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = worker.local_facts(QEMU)
    assert whole == worker.local_facts(QEMU) and whole.plugin == plugin.PROGRAM.digest()

    def none(command: str = "gcc") -> None:
        raise HostFailed("the compiler gcc is not installed")

    monkeypatch.setattr(compilers, "identify", none)
    assert worker.local_facts(QEMU) == replace(whole, plugin="")


@pytest.mark.parametrize("name", architecture.names())
def test_another_machine_of_any_architecture_is_a_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, real = worker.local_facts(QEMU), exact.exact_machine

    def edited(guests: str = architecture.DEFAULT) -> exact.ExactMachine:
        machine = real(guests)
        return replace(machine, shift=machine.shift + 1) if guests == name else machine

    monkeypatch.setattr(exact, "exact_machine", edited)
    theirs = worker.local_facts(QEMU)
    assert mine.differences(theirs) == ["a machine of exact mode (machines/ARCH/exact.toml)"]
    assert worker.guests_resource(theirs) != worker.guests_resource(mine)
