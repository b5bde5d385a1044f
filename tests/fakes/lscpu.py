"""Hosts of several shapes, as their lscpu printed them."""

from pathlib import Path

from lab.guests import topology
from lab.guests.topology import HostCpu

DATA = Path(__file__).parents[1] / "data" / "lscpu"
LAPTOP, SERVER, HYBRID = "core-i5-m560", "epyc-7451-2-sockets", "core-ultra-9-185h"


def host(name: str) -> list[HostCpu]:
    return topology.read((DATA / f"{name}.json").read_bytes())
