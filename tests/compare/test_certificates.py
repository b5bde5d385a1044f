"""Noise certificates: what they say, where they are kept, and who quotes them when."""

import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.cli import aa
from lab.compare import result_folders
from lab.compare.certificates import certify, covariates, keep, kept, layouts_sd, quote, setup
from lab.compare.plan import Plan
from lab.compare.request import ComparisonRequest
from lab.compare.results import AbResult
from lab.core import paths
from lab.core.errors import HostFailed
from lab.kernels.spec import with_layout

from ..fakes import result as fakeresult
from ..fakes.command import Lab
from ..fakes.guest import FakeGuests, kernel, plan, pretend, write_workload
from ..fakes.host import BENCH, LAPTOP, plant
from ..fakes.result import RATE, case, result

pytestmark = pytest.mark.usefixtures("own_home")

NAME = "alloc-burst:noisy"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    return plant(tmp_path / "bench", BENCH)


def live_result(sd: float = 0.02, rounds: int = 40, **more: Any) -> AbResult:
    """A kernel compared with itself in live mode: pairs that differ by noise of a known sd."""
    chance = random.Random(7)  # noqa: S311
    base = [1000 * math.exp(chance.gauss(0, 0.1)) for _ in range(rounds)]
    test = [b * math.exp(chance.gauss(0, sd)) for b in base]
    live = fakeresult.live()
    live = msgspec.structs.replace(live, accelerator="kvm", sampling={NAME: next(iter(live.sampling.values()))})
    made = case("noisy", base, test, primary=RATE)
    return result(made, mode="live", live=live, seeds=list(range(1, rounds + 1)), **more)


def test_a_certificate_says_how_far_a_kernel_is_from_itself(bench: Path) -> None:
    (made,) = certify(live_result(), bench)
    assert (made.case, made.mode, made.accelerator, made.pairs, made.disturbed) == (NAME, "live", "kvm", 40, 1)
    assert made.block_sd == pytest.approx(0.02, rel=0.3)
    assert made.quantiles["5"] < made.quantiles["25"] < 1 < made.quantiles["75"] < made.quantiles["95"]
    assert not made.equal and made.setup["governor"] == "performance"
    assert made.setup["CPU"].startswith("Intel")
    found = [made.resolves[n] for n in ("6", "10", "15", "30")]
    assert found == sorted(found, reverse=True)
    assert made.resolves["15"] == made.smallest(15) and made.smallest(3) is None


def with_control(noise: float) -> AbResult:
    """A kernel compared with itself, by a case and a control; noise: the case's own, beside that of the control."""
    rounds, chance = 30, random.Random(5)  # noqa: S311
    whole = live_result(rounds=rounds)
    luck = [chance.gauss(0, 0.02) for _ in range(rounds)]
    base = [1000.0] * rounds
    noisy = case("noisy", base, [1000 * math.exp(0.5 * v + chance.gauss(0, noise)) for v in luck], primary=RATE)
    still = case("still", base, [1000 * math.exp(v) for v in luck], primary=RATE)
    still = msgspec.structs.replace(still, control=True)
    assert whole.live
    sampling = dict.fromkeys((NAME, "alloc-burst:still"), whole.live.sampling[NAME])
    live = msgspec.structs.replace(whole.live, sampling=sampling)
    return msgspec.structs.replace(whole, cases=[noisy, still], live=live)


def test_a_control_that_shares_the_noise_is_a_covariate(bench: Path) -> None:
    noisy, still = certify(with_control(0.007), bench)
    assert noisy.covariate and still.covariate is None
    assert (noisy.covariate.control, noisy.covariate.pairs) == ("alloc-burst:still", 30)
    assert noisy.covariate.slope == pytest.approx(0.5, abs=0.2)
    assert noisy.covariate.correlation == pytest.approx(0.82, abs=0.1)
    assert noisy.helps == noisy.covariate
    unaided = msgspec.structs.replace(noisy, covariate=None).smallest(15)
    helped = noisy.smallest(15)
    assert unaided and helped
    assert helped < 0.75 * unaided
    # Used for the same host as it is set up now, and if the control is measured as well.
    keep([noisy, still])
    asked = {"present": setup("7.2.22 (Debian)", bench), "accelerator": "kvm", "duet": False}
    both = ("alloc-burst:noisy", "alloc-burst:still")
    assert covariates(both, **asked) == {"alloc-burst:noisy": noisy.covariate}
    assert covariates(both[:1], **asked) == covariates(both, **{**asked, "duet": True}) == {}
    assert covariates(both, **{**asked, "present": {**noisy.setup, "governor": "powersave"}}) == {}


def test_what_is_exact_has_to_be_equal(bench: Path) -> None:
    values = [100.0, 101.0, 102.0]
    equal = case("layout", values, values)
    alike = msgspec.structs.replace(
        equal, metrics=[msgspec.structs.replace(metric, test=metric.base) for metric in equal.metrics]
    )
    (made,) = certify(result(alike), bench)
    assert (made.equal, made.block_sd, made.resolves["6"]) == (True, 0.0, 0.0)
    # The counters of `case` differ between the arms: one number that does is enough.
    with pytest.raises(HostFailed, match=r"page_faults of alloc-burst:layout differs .* with seed 1"):
        certify(result(equal), bench)


def of_builds(shift: float, layout: int) -> AbResult:
    """A kernel compared with itself in another layout, which is that far away."""
    alike = live_result()
    (noisy,) = alike.cases
    rate, *others = noisy.metrics
    moved = msgspec.structs.replace(rate, test=[value and value * math.exp(shift) for value in rate.test])
    arm = msgspec.structs.replace(alike.test, spec=with_layout(alike.base.spec, layout))
    made = msgspec.structs.replace(noisy, metrics=[moved, *others])
    return msgspec.structs.replace(alike, test=arm, cases=[made])


def known_sd(root: Path, **more: Any) -> float | None:
    present = setup("7.2.22 (Debian)", root)
    return layouts_sd(NAME, RATE.name, present, **{"accelerator": "kvm", **more})


def test_the_sd_of_layouts_is_that_of_the_shifts_between_builds(bench: Path, tmp_path: Path) -> None:
    keep(certify(live_result(), bench))
    assert known_sd(bench) is None
    for layout, shift in enumerate((0.03, -0.04, 0.0), start=1):
        keep(certify(of_builds(shift, layout), bench))
    assert len(kept()) == 4 and {one.layout for one in kept()} == {0, 1, 2, 3}
    # Twice the variance of one layout; the noise of 40 rounds at 2 % is taken off.
    assert known_sd(bench) == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 3 / 2), rel=0.15)
    assert known_sd(bench, accelerator="tcg") is None
    assert known_sd(plant(tmp_path / "laptop", LAPTOP)) is None, "the host has changed since"
    assert "this host resolves" in (quoted(bench) or ""), "by the one of the kernel itself"


# ---- kept and quoted


def quoted(root: Path, **more: Any) -> str | None:
    asked = {"accelerator": "kvm", "duet": False, "rounds": 15, **more}
    return quote(NAME, setup("7.2.22 (Debian)", root), **asked)


def test_a_certificate_is_quoted_for_what_it_is_of(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quoted(bench) is None
    keep(certify(live_result(), bench))
    told = quoted(bench)
    assert told and told.startswith("by its noise certificate (2026-11-21, 40 rounds) this host resolves ")
    assert told.endswith(" % in 15 rounds")
    assert quoted(bench, accelerator="tcg") is None and quoted(bench, duet=True) is None
    assert "resolves nothing yet in 3 rounds" in str(quoted(bench, rounds=3))
    monkeypatch.setattr("platform.node", lambda: "another")
    assert quoted(bench) is None


def test_it_warns_when_the_host_has_changed_since(bench: Path, tmp_path: Path) -> None:
    keep(certify(live_result(), bench))
    told = quoted(plant(tmp_path / "laptop", LAPTOP))
    assert told and "but the host has changed since (" in told
    assert "governor: performance -> powersave" in told
    assert "THP: never -> always" in told
    # A certificate of the host as it is goes before a newer one of what it was.
    keep(certify(live_result(sd=0.1), tmp_path / "laptop"))
    keep(certify(live_result(started="2026-11-22T09:00:00+00:00"), bench))
    assert "changed" not in str(quoted(tmp_path / "laptop"))


def test_a_newer_certificate_takes_the_place_of_an_older_one(bench: Path) -> None:
    keep(certify(live_result(), bench))
    keep(certify(live_result(started="2026-11-22T09:00:00+00:00"), bench))
    assert [one.made[:10] for one in kept()] == ["2026-11-22"]
    next(paths.data_dir("certificates").glob("*/*.json")).write_text("{")
    assert kept() == []


# ---- the command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ComparisonRequest]:
    """What `lab aa` was asked for, each time that it planned a comparison of two kernel files."""
    requests: list[ComparisonRequest] = []

    def plan_of(options: ComparisonRequest, _: object) -> Plan:
        requests.append(options)
        return options.plan([kernel(name).spec for name in ("base", "test")], None)

    monkeypatch.setattr(aa, "plan_of", plan_of)
    return requests


@pytest.mark.usefixtures("asked")
def test_the_command_keeps_and_lists_certificates(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no certificates yet" in lab("aa", "--list").out
    monkeypatch.setattr(aa, "measure_aloud", lambda *_: live_result())
    assert NAME in lab("aa", "v1").out
    document = lab("aa", "--list", "--json").document
    assert document["schema"] == "lab.aa/1"
    assert [one["case"] for one in document["certificates"]] == [NAME]
    assert {each.split(":")[0] for each in document["certificates"][0]["changed"]} <= {"QEMU"}
    stored = max(result_folders.results_dir().iterdir(), key=lambda path: path.stat().st_mtime)
    assert result_folders.resume_command(stored) == f"lab aa --resume {stored.name}"
    assert result_folders.load_plan(stored).fixed_seeds


def test_the_command_compares_builds(lab: Lab, monkeypatch: pytest.MonkeyPatch, asked: list[ComparisonRequest]) -> None:
    monkeypatch.setattr(aa, "measure_aloud", lambda *_: of_builds(0.03, 2))
    assert "live kvm layout-2 +" in lab("aa", "v1@thp=never", "--layout", "2").out
    assert [(one.base, one.test) for one in asked] == [("v1@thp=never", "v1+layout-2@thp=never")]
    assert "deb:6.12 is a built kernel" in lab("aa", "deb:6.12", "--layout", "2", status=2).err


@pytest.mark.usefixtures("asked")
def test_exact_mode_that_is_not_exact_exits_4(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aa, "measure_aloud", lambda *_: result(fakeresult.SLOWER))
    assert "exact mode is not exact here" in lab("aa", "v1", status=4).err
    assert kept() == []


def test_one_kernel_through_exact_mode_is_equal(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `lab aa` but the guests, which give numbers by seed."""
    pretend(monkeypatch, tmp_path, FakeGuests())
    monkeypatch.setattr(aa, "plan_of", lambda asked, _: plan(write_workload(tmp_path / "mine"), fixed_seeds=True))
    lines = lab("aa", "v1", "--jobs", "1").out.splitlines()
    assert lines[0] == "mine:small: equal to the last digit in every metric, 6 seeds, each run twice: same"
    assert {one.equal for one in kept()} == {True}


def test_what_cannot_be_is_refused(lab: Lab) -> None:
    assert "a kernel is needed" in lab("aa", status=2).err
    assert "a kernel is needed" in lab("aa", "v1", "--resume", "x", status=2).err
    assert "there is no result 'nothing'" in lab("aa", "--resume", "nothing", status=2).err
