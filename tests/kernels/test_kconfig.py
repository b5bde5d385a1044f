"""Kernel configuration: what is asked for, and what kconfig made of it."""

import pytest

from lab.core.paths import data_folder
from lab.kernels import architecture, kconfig

CONFIG = """\
# Automatically generated file; DO NOT EDIT.
CONFIG_CC_VERSION_TEXT="gcc (Debian 12.2.0-14) 12.2.0"
CONFIG_SMP=y
  CONFIG_NR_CPUS=64
# CONFIG_NUMA is not set
#CONFIG_COMMENTED=y
CONFIG_EMPTY=
not an option
"""


def test_parse_reads_values_and_what_is_not_set() -> None:
    assert kconfig.parse(CONFIG) == {
        "CONFIG_CC_VERSION_TEXT": '"gcc (Debian 12.2.0-14) 12.2.0"',
        "CONFIG_SMP": "y",
        "CONFIG_NR_CPUS": "64",
        "CONFIG_NUMA": "n",
    }


@pytest.mark.parametrize("guests", architecture.names())
def test_every_line_of_the_shipped_fragments_is_understood_and_none_is_in_both(guests: str) -> None:
    required, optional = kconfig.guest_options(guests)
    for options, name in ((required, "guest.config"), (optional, "guest-optional.config")):
        files = [data_folder("kernels") / "fragments" / name, data_folder("machines") / guests / name]
        texts = [path.read_text() for path in files if path.exists()]
        lines = [line for line in "".join(texts).splitlines() if "CONFIG_" in line and not line.startswith("# ")]
        assert len(options) == len(lines) > 5
    assert not required.keys() & optional.keys()


def test_the_specs_own_options_win_also_over_what_a_workload_needs() -> None:
    plain, known = kconfig.requested([])
    required, optional = kconfig.requested([("CONFIG_SMP", "n"), ("CONFIG_LRU_GEN", "n"), ("CONFIG_NEW", "y")])
    assert plain["CONFIG_SMP"] == "y" and known["CONFIG_LRU_GEN"] == "y"
    assert (required["CONFIG_SMP"], required["CONFIG_LRU_GEN"], required["CONFIG_NEW"]) == ("n", "n", "y")
    assert "CONFIG_LRU_GEN" not in optional
    assert required.keys() - plain.keys() == {"CONFIG_LRU_GEN", "CONFIG_NEW"}
    # What a workload needs:
    needs = ["CONFIG_AIO", "CONFIG_INET", "CONFIG_VIRTIO_BALLOON"]
    # The fragments ask for the first, know nothing of the second, and unset the third.
    assert kconfig.missing([], needs) == (("CONFIG_INET", "y"), ("CONFIG_VIRTIO_BALLOON", "y"))
    assert kconfig.missing([("CONFIG_INET", "n"), ("CONFIG_VIRTIO_BALLOON", "y")], needs) == ()


def test_dropped_is_what_did_not_stay_as_asked() -> None:
    wanted = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": "n", "CONFIG_D": "n", "CONFIG_E": "64"}
    resolved = {"CONFIG_A": "y", "CONFIG_C": "y", "CONFIG_E": "8"}
    assert kconfig.dropped(wanted, resolved) == {"CONFIG_B": "n", "CONFIG_C": "y", "CONFIG_E": "8"}
