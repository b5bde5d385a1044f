"""The CPU that a kernel believes in: its report, and the line where the kernel of the machine does otherwise."""

import msgspec
import pytest

from lab.compare import beliefs, sampling, state
from lab.compare.beliefs import Belief
from lab.compare.runs import Run
from lab.guests import hardware
from lab.guests.hardware import Machine
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

from ..fakes.guest import Formula, alike
from .conftest import Start
from .test_sampling import halved
from .test_state import a_run

SAPPHIRE = hardware.load("sapphire-rapids")
ZEN = hardware.load("zen4")

# Linux 7.1 in guests with the parameters of their machines.
MODERN = {
    "itlb_multihit": "KVM: Mitigation: VMX unsupported",
    "l1tf": "Mitigation: PTE Inversion",
    "mds": "Vulnerable; SMT Host state unknown",
    "meltdown": "Vulnerable",
    "mmio_stale_data": "Unknown: No mitigations",
    "spec_store_bypass": "Mitigation: Speculative Store Bypass disabled via prctl",
    "spectre_v1": "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
    "spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: BHI_DIS_S",
    "vmscape": "Not affected",
}
RETPOLINES = "Mitigation: Retpolines; STIBP: disabled; RSB filling; PBRSB-eIBRS: Not affected; BHI: Retpoline"


@pytest.mark.parametrize(
    ("report", "done"),
    [
        *((nothing, set()) for nothing in (
            "Not affected", "Vulnerable", "Vulnerable; SMT Host state unknown", "Vulnerable: No microcode",
            "Unknown: No mitigations", "Unknown: Dependent on hypervisor status", "KVM: Mitigation: VMX unsupported",
            "Mitigation: PTE Inversion; VMX: vulnerable", "Mitigation: IBPB before exit to userspace",
        )),
        ("Mitigation: PTI", {"pti"}),
        ("Mitigation: Safe RET", {"safe ret"}),
        ("Vulnerable: Safe RET, no microcode", {"safe ret"}),
        ("Mitigation: Clear CPU buffers; SMT vulnerable", {"clear cpu buffers"}),
        ("Vulnerable: Clear CPU buffers attempted, no microcode", {"clear cpu buffers"}),
        ("Vulnerable: eIBRS with unprivileged eBPF", {"eibrs with unprivileged ebpf"}),
        (RETPOLINES, {"retpolines", "bhi: retpoline"}),
        ("Mitigation: CSV2, BHB", {"csv2", "bhb"}),
        (MODERN["spectre_v2"], {"enhanced / automatic ibrs", "ibpb: conditional", "bhi: bhi_dis_s"}),
    ],
)  # fmt: skip
def test_what_a_report_says_that_a_kernel_does(report: str, done: set[str]) -> None:
    assert beliefs.in_force(report) == done


def test_a_guest_that_does_what_the_machine_does_is_not_mentioned() -> None:
    assert beliefs.differences(MODERN, SAPPHIRE) == {}
    assert beliefs.differences({}, SAPPHIRE) == {}
    assert beliefs.remarks(runs(MODERN, {}), SAPPHIRE) == []


def test_each_difference_is_named() -> None:
    found = MODERN | {"meltdown": "Mitigation: PTI", "spectre_v2": RETPOLINES}
    apart = beliefs.differences(found, SAPPHIRE)
    assert apart["meltdown"] == "'Mitigation: PTI', there 'Not affected'" and list(apart) == ["meltdown", "spectre_v2"]
    (line,) = beliefs.remarks(runs({}, found), SAPPHIRE)
    assert line.startswith(
        "test believes in another CPU than sapphire-rapids: meltdown is 'Mitigation: PTI', there 'Not"
    )
    assert "; spectre_v2 is 'Mitigation: Retpolines" in line and "there 'Mitigation: Enhanced" in line


def test_what_the_machine_does_not_list_is_not_there_and_microcode_counts_where_the_kernel_then_does_nothing() -> None:
    assert beliefs.differences({"later": "Vulnerable"}, SAPPHIRE) == {}
    assert beliefs.differences({"later": "Mitigation: Slow path"}, SAPPHIRE) == {
        "later": "'Mitigation: Slow path', there 'Not affected'"
    }
    assert beliefs.differences({"tsa": "Vulnerable: No microcode"}, ZEN)
    assert not beliefs.differences({"tsa": "Vulnerable: Clear CPU buffers attempted, no microcode"}, ZEN)


def runs(base: dict[str, str], test: dict[str, str]) -> dict[str, Run]:
    return {
        arm: a_run(arm, settings={"thp": "always"} | {f"vulnerability.{name}": text for name, text in found.items()})
        for arm, found in (("base", base), ("test", test))
    }


def believed(base: dict[str, str], test: dict[str, str], machine: Machine = SAPPHIRE) -> dict[str, Belief]:
    return {arm: Belief.of(run.report.settings, machine) for arm, run in runs(base, test).items()}


def test_the_line_names_the_arms_and_the_machine() -> None:
    assert beliefs.reason_of(believed({}, {})) == ""
    assert beliefs.reason_of(believed(MODERN, {})) == ""
    one = beliefs.reason_of(believed({}, {"meltdown": "Mitigation: PTI"}))
    assert one == "test believes in another CPU than sapphire-rapids: meltdown"
    wrong = {"meltdown": "Mitigation: PTI"}
    assert beliefs.reason_of(believed(wrong, wrong)).startswith("base and test believe in another CPU than ")
    said = beliefs.reason_of(believed(wrong, {"spectre_v2": RETPOLINES}))
    assert "base believes in another CPU" in said and "; test believes in another CPU" in said
    assert "\n" not in said


def test_a_machine_that_says_nothing_gives_no_word() -> None:
    silent = msgspec.structs.replace(SAPPHIRE, mitigations={}, name="mine")
    assert beliefs.reason_of(believed({}, MODERN, silent)) == "machine mine does not say what its kernel mitigates"
    assert beliefs.reason_of(believed({}, {}, silent)) == ""


def test_the_host_that_a_machine_was_measured_on_says_it_too() -> None:
    host = hardware.Host(architecture="x86_64", cpu="a", kernel="6.99", mitigations={"meltdown": "Mitigation: PTI"})
    measured = msgspec.structs.replace(SAPPHIRE, mitigations={}, host=host)
    assert beliefs.reason_of(believed({}, {"meltdown": "Mitigation: PTI"}, measured)) == ""
    assert beliefs.reason_of(believed({}, {"meltdown": "Vulnerable"}, measured))


def primary(word: Outcome | None) -> Comparison:
    metric = Metric(name="m", unit="u", better="lower", primary=True)
    return msgspec.structs.replace(compare_metric(metric, [1.0] * 6, [1.0] * 6, exact=True), verdict=word)


WORDS = [Outcome.SAME, Outcome.IMPROVEMENT, Outcome.REGRESSION, Outcome.UNKNOWN]


@pytest.mark.parametrize("word", WORDS)
def test_no_word_stands_where_a_kernel_believes_in_another_cpu(word: Outcome) -> None:
    wrong = believed({}, {"meltdown": "Mitigation: PTI"})
    found = beliefs.weigh(primary(word), wrong)
    assert (found.verdict, found.more_blocks) == (Outcome.UNKNOWN, None)
    assert found.reason == "test believes in another CPU than sapphire-rapids: meltdown"
    assert beliefs.weigh(primary(None), wrong).verdict is None


@pytest.mark.parametrize("word", WORDS)
def test_arms_of_equal_mitigations_keep_their_word(word: Outcome) -> None:
    for both in (believed({}, {}), believed(MODERN, MODERN)):
        assert beliefs.weigh(primary(word), both).verdict == word


PAID = "no model counts what bhi: bhi_dis_s, enhanced / automatic ibrs cost the CPU of one arm"


@pytest.mark.parametrize("word", [Outcome.SAME, Outcome.IMPROVEMENT, Outcome.REGRESSION])
@pytest.mark.parametrize(
    ("base", "test", "stands"), [({}, MODERN, Outcome.REGRESSION), (MODERN, {}, Outcome.IMPROVEMENT)]
)
def test_where_one_cpu_alone_pays_only_a_word_against_its_arm_stands(
    base: dict[str, str], test: dict[str, str], stands: Outcome, word: Outcome
) -> None:
    found = beliefs.weigh(primary(word), believed(base, test))
    assert (found.verdict, found.reason == PAID) == ((word, False) if word == stands else (Outcome.UNKNOWN, True))


@pytest.mark.parametrize("formula", [alike, halved])
def test_under_another_belief_all_is_unknown(start: Start, monkeypatch: pytest.MonkeyPatch, formula: Formula) -> None:
    wrong = believed({}, {"meltdown": "Mitigation: PTI"})
    monkeypatch.setattr(sampling, "weigh_belief", lambda found, *_: beliefs.weigh(found, wrong))
    result = start(formula)[1]()
    assert result.verdict == Outcome.UNKNOWN
    assert all(case.metrics[0].reason.startswith("test believes in another CPU") for case in result.cases)


def test_vulnerabilities_are_no_difference_of_state() -> None:
    both = runs(MODERN, dict.fromkeys(MODERN, "Vulnerable"))
    assert state.boot_remarks(both["base"], both["test"]) == []
