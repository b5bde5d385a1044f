"""`lab ab --robust` in real guests: a run's events add up to its metric, and verdicts are judged at other costs."""

from pathlib import Path

import pytest

from lab.compare import runs
from lab.guests import costs, hardware

from .conftest import NEW, Lab

pytestmark = pytest.mark.guest

CASES = "alloc-burst:layout-2560k,single-2052k"


@pytest.mark.parametrize("model", ["tlb", "full"])
def test_a_regression_that_no_cost_turns(lab: Lab, open_folder: Path, model: str) -> None:
    folder = open_folder / "result"
    words = ("-w", CASES, "--model", model, "--robust", "--result", str(folder))
    document = lab.ab(NEW, f"{NEW}@thp=never", *words)
    for run in runs.load_all(folder):
        prices = costs.prices_of(hardware.load())
        for case, metrics in run.costs.items():
            assert costs.cycles(run.events[case], prices) == pytest.approx(metrics["cycles_per_op"], abs=1e-6)
    cases = {case["case"]: case for case in document["cases"]}
    assert (cases["layout-2560k"]["verdict"], cases["single-2052k"]["verdict"]) == ("regression", "same")
    for case in cases.values():
        robust, ratio = case["robustness"], case["metrics"][0]["ratio"]
        assert robust["low"] <= ratio <= robust["high"]
        assert robust["depends_on"] == []
        assert robust["holds_on"] == ["sapphire-rapids", "sierra-forest", "zen4"]
    assert cases["layout-2560k"]["robustness"]["high"] > 1.1
    words = lab.run("report", str(folder)).stdout
    assert "at other costs, within the ranges of sapphire-rapids; other machines with one seed:" in words
    assert words.count("survives every corner: ") == words.count("; holds on all three machines (") == 2
