import pytest

from lab.core.errors import GuestFailure


@pytest.mark.parametrize(("cause", "kinds"), [
    ("kernel", {"build", "panic", "oops", "oom", "hang", "no-report"}),
    ("workload", {"workload", "malformed", "unsupported"}),
    ("request", {"refused"}),
    ("host", {"qemu-died"}),
])  # fmt: skip
def test_every_failure_of_a_guest_has_one_cause(cause: str, kinds: set[str]) -> None:
    assert {kind for kind in GuestFailure if kind.blames == cause} == kinds
