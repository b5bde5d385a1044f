"""A matrix of real guests: two settings of one kernel."""

import pytest

from .conftest import NEW, Lab

pytestmark = [pytest.mark.guest]


@pytest.mark.smoke
def test_thp_by_defrag_is_a_table_and_a_result(lab: Lab) -> None:
    document = lab.json(
        "matrix", "--kernel", NEW, "--set", "thp=always,never", "--set", "thp.defrag=always,never",
        "-w", "alloc-burst:layout-4632k", "--seeds", "2",
    )  # fmt: skip
    cells = {cell["arm"]: cell for cell in document["cells"]}
    assert len({arm["arm"]["build"] for arm in document["arms"]}) == 1 and len(cells) == 4
    # On fresh memory nothing has to be compacted, so defrag alone decides nothing; huge pages do.
    assert cells["thp=always thp.defrag=never"]["comparison"]["ratio"] == pytest.approx(1, abs=0.02)
    for arm in ("thp=never thp.defrag=always", "thp=never thp.defrag=never"):
        assert cells[arm]["means"]["thp_fault_alloc"] == 0
        assert cells[arm]["means"]["page_faults"] > 10 * cells["thp=always thp.defrag=always"]["means"]["page_faults"]
        assert cells[arm]["comparison"]["ratio"] > 1.5, "cycles per operation"
    text = lab.run("report", document["result"]).stdout
    assert "thp \\ thp.defrag" in text and "always" in text
