"""Seats and QEMU command lines on hosts of several shapes, from what lscpu says of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lab.core.errors import HostFailed, UserError
from lab.guests import host as guest_host
from lab.guests import live_machine, pinning, topology
from lab.guests.live_machine import LiveGuest
from lab.guests.topology import CpuSet, HostCpu, Layout, Shape

DATA = Path(__file__).parents[1] / "data" / "lscpu"
LAPTOP, SERVER, HYBRID = "core-i5-m560", "epyc-7451-2-sockets", "core-ultra-9-185h"


def host(name: str) -> list[HostCpu]:
    return topology.read((DATA / f"{name}.json").read_bytes())


def cpu_sets(layout: Layout) -> list[tuple[list[int], list[int]]]:
    return [(cpu_set.cpus, cpu_set.nodes) for cpu_set in layout.cpu_sets]


def qemu(layout: Layout, cpu_set: int = 0, **more: object) -> str:
    guest = LiveGuest(
        qemu="/usr/bin/qemu-system-x86_64", accelerator="kvm", shape=layout.shape, cpu_set=layout.cpu_sets[cpu_set],
        memory_mb=1024, hugepage_kb=None, arguments=[],
    )  # fmt: skip
    return " ".join(live_machine.qemu_options(msgspec.structs.replace(guest, **more)))


REST = (
    " -initrd initrd.cpio -chardev file,id=report,path=report.jsonl -device isa-serial,chardev=report"
    " -qmp unix:qmp.sock,server=on,wait=off -S"
)
ONE_NODE = "-machine q35,mem-merge=off,dump-guest-core=off,accel=kvm,memory-backend=mem0"
MORE_NODES = "-machine q35,mem-merge=off,dump-guest-core=off,accel=kvm"
RAM = "prealloc=on,merge=off,dump=off"


def test_every_vcpu_has_a_core_of_its_own_while_there_are_enough() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=2)
    assert cpu_sets(layout) == [([0, 1], [])]
    assert layout.shape.smp == "2,sockets=1,cores=2,threads=1"
    assert layout.cpu_sets[0].others == [2, 3], "the cores' second threads: no others are left"
    assert qemu(layout) == f"{ONE_NODE} -object memory-backend-ram,id=mem0,size=1024M,{RAM}{REST}"


def test_more_vcpus_than_cores_are_threads_of_cores() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=4)
    assert cpu_sets(layout) == [([0, 2, 1, 3], [])], "vCPUs 0 and 1 are one guest core, and one host core"
    assert layout.shape.smp == "4,sockets=1,cores=2,threads=2"
    assert layout.cpu_sets[0].others == []


def test_a_server_gives_one_node_and_binds_the_memory_to_it() -> None:
    layout = topology.plan(host(SERVER), vcpus=4)
    assert cpu_sets(layout) == [([0, 1, 2, 3], [0])]
    assert layout.cpu_sets[0].others == [4, 5, 52, 53], "of the same node, and no thread of the guest's cores"
    memory_words = f"-object memory-backend-ram,id=mem0,size=1024M,{RAM},host-nodes=0,policy=bind"
    assert qemu(layout) == f"{ONE_NODE} {memory_words}{REST}"


def test_a_guest_too_large_for_a_node_gets_more_of_them() -> None:
    layout = topology.plan(host(SERVER), vcpus=24)
    assert layout.shape.smp == "24,sockets=2,cores=6,threads=2"
    assert layout.cpu_sets[0].nodes == [0, 1]
    assert qemu(layout) == (
        f"{MORE_NODES}"
        f" -object memory-backend-ram,id=mem0,size=512M,{RAM},host-nodes=0,policy=bind"
        " -numa node,nodeid=0,memdev=mem0,cpus=0-11"
        f" -object memory-backend-ram,id=mem1,size=512M,{RAM},host-nodes=1,policy=bind"
        f" -numa node,nodeid=1,memdev=mem1,cpus=12-23{REST}"
    )


def test_nodes_that_were_asked_for() -> None:
    layout = topology.plan(host(SERVER), vcpus=2, nodes=2)
    assert cpu_sets(layout) == [([0, 6], [0, 1])]
    assert "-numa node,nodeid=1,memdev=mem1,cpus=1 " in qemu(layout)
    make_believe = topology.plan(host("two-cores-guest"), vcpus=2, nodes=2)
    assert cpu_sets(make_believe) == [([0, 1], [])], "a host of one node binds nothing"
    assert "host-nodes" not in qemu(make_believe)


def test_huge_pages_of_the_host() -> None:
    words = qemu(topology.plan(host(LAPTOP), vcpus=1), hugepage_kb=2048)
    assert f"-object memory-backend-memfd,id=mem0,size=1024M,{RAM},hugetlb=on,hugetlbsize=2048K" in words


def test_a_host_without_smt() -> None:
    layout = topology.plan(host("epyc-7451-2-sockets-smt-off"), vcpus=6)
    assert cpu_sets(layout) == [([0, 1, 2, 3, 4, 5], [0])]
    assert layout.cpu_sets[0].others == [*range(6, 48)], "its node is full: the others'"


def test_a_duet_has_two_seats_alike_that_share_nothing() -> None:
    layout = topology.plan(host(SERVER), vcpus=4, duet=True)
    assert cpu_sets(layout) == [([0, 1, 2, 3], [0]), ([6, 7, 8, 9], [1])], "a node each"
    assert qemu(layout, 0).replace("host-nodes=0", "host-nodes=1") == qemu(layout, 1)
    one_node = topology.plan(host("two-cores-guest"), vcpus=1, duet=True)
    assert cpu_sets(one_node) == [([0], []), ([1], [])]


def test_siblings_are_not_shared_between_arms() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=2, duet=True)
    assert cpu_sets(layout) == [([0, 2], []), ([1, 3], [])], "two threads of one core each"
    for name in (LAPTOP, SERVER, HYBRID, "two-sockets-interleaved", "xeon-x7550-4-sockets"):
        cpus = host(name)
        core = {one.cpu: (one.socket, one.core) for one in cpus}
        first, second = topology.plan(cpus, vcpus=2, duet=True).cpu_sets
        assert not {core[cpu] for cpu in first.cpus} & {core[cpu] for cpu in second.cpus}, name
        taken = {core[cpu] for cpu in first.cpus + second.cpus}
        assert name == LAPTOP or not {core[cpu] for cpu in first.others} & taken, name


def test_arms_get_cores_of_the_same_kind() -> None:
    layout = topology.plan(host(HYBRID), vcpus=3, duet=True)
    assert cpu_sets(layout) == [([0, 1, 3], []), ([6, 8, 10], [])], "the cores with two threads, not the small ones"
    with pytest.raises(UserError, match="not enough CPUs"):
        topology.plan(host(HYBRID), vcpus=8, duet=True)
    assert topology.plan(host(HYBRID), vcpus=16).shape.cores == 16, "one guest at a time may have them all"


def test_the_host_mirrored() -> None:
    assert topology.plan(host(SERVER), vcpus=None).shape == Shape(nodes=8, cores=6, threads=2)
    assert topology.plan(host(SERVER), vcpus=None, duet=True).shape == Shape(nodes=4, cores=6, threads=2)
    layout = topology.plan(host("two-sockets-interleaved"), vcpus=None, duet=True)
    assert layout.cpu_sets[0].cpus == [0, 12, 2, 14, 4, 16, 6, 18, 8, 20, 10, 22]
    assert layout.cpu_sets[1].cpus == [1, 13, 3, 15, 5, 17, 7, 19, 9, 21, 11, 23]
    assert topology.plan(host(LAPTOP), vcpus=None, duet=True).shape == Shape(nodes=1, cores=1, threads=2)


def test_sockets_that_name_no_node() -> None:
    layout = topology.plan(host("xeon-x7550-4-sockets"), vcpus=8)
    assert cpu_sets(layout) == [([0, 4, 8, 12, 16, 20, 24, 28], [])], "all of one socket"


def test_too_few_cpus() -> None:
    with pytest.raises(UserError, match="2 CPUs on 2 cores in 1 NUMA node") as refused:
        topology.plan(host("two-cores-guest"), vcpus=2, duet=True)
    assert refused.value.exit_status == 2
    assert refused.value.hint and "without --duet" in refused.value.hint
    with pytest.raises(UserError, match="1 guest with 4 vCPUs each"):
        topology.plan(host("two-cores-guest"), vcpus=4)
    with pytest.raises(UserError, match="evenly"):
        topology.plan(host(SERVER), vcpus=3, nodes=2)
    with pytest.raises(UserError, match="like itself"):
        topology.plan(host("two-cores-guest"), vcpus=None, nodes=2)


def test_lscpu_in_all_its_forms() -> None:
    assert host("words-for-numbers") == host(LAPTOP)
    assert len(host("epyc-7451-2-sockets-smt-off")) == 48
    for broken in (b"", b"[]", b'{"cpus": [{}]}', b'{"cpus": []}', b'{"cpus": [{"cpu": 0, "online": false}]}'):
        with pytest.raises(HostFailed, match="lscpu"):
            topology.read(broken)
    bare = topology.read(b'{"cpus": [{"cpu": 0}, {"cpu": 1}]}')
    assert [(one.core, one.node) for one in bare] == [(0, 0), (1, 0)]


def test_this_machine_can_seat_a_guest() -> None:
    mine = topology.host_cpus([*range(4096)])
    assert topology.plan(mine, vcpus=1).cpu_sets[0].cpus[0] == mine[0].cpu


# ---- what vng is asked, and what it answers


PRINTED = (
    "/usr/bin/qemu-system-x86_64 -name virtme-ng -chardev file,id=console,path=/proc/self/fd/2 "
    "-chardev stdio,id=stdin,signal=on,mux=off -chardev file,id=stdout,path=/proc/self/fd/1 "
    "-chardev file,id=ret,path=/tmp/virtme_ret0 -kernel ./kernel "
    "-append 'virtme_hostname=virtme-ng rdinit=/init init=/bin/sh -- -c \"exec x\"' "
    "-chardev file,id=report,path=report.jsonl\n"
)


def test_what_vng_prints_becomes_a_command_of_the_guests_folder() -> None:
    words = live_machine.qemu_argv(f"a warning\n{PRINTED}")
    assert "file,id=console,path=console.log" in words
    assert "file,id=report,path=report.jsonl" in words
    assert {"null,id=stdin", "null,id=stdout", "null,id=ret"} < set(words)
    assert words[words.index("-append") + 1] == "virtme_hostname=virtme-ng rdinit=/init"
    with pytest.raises(HostFailed, match="printed no QEMU command"):
        live_machine.qemu_argv("usage: vng\n")


def test_vng_is_asked_for_a_guest_without_network_or_balloon() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=2)
    guest = LiveGuest(
        qemu="/q", accelerator="kvm", shape=layout.shape, cpu_set=layout.cpu_sets[0], memory_mb=640, hugepage_kb=None,
        arguments=["odd=a b"],
    )  # fmt: skip
    words = live_machine.vng_argv(guest)
    assert words[:4] == ["--run", "./kernel", "--root", "./room"]
    assert not {"--network", "--balloon", "--rw", "--disable-kvm", "--pin"} & set(words)
    assert "'odd=a b'" in words[words.index("--append") + 1], "one argument of the kernel's"
    assert "--disable-kvm" in live_machine.vng_argv(msgspec.structs.replace(guest, accelerator="tcg"))


# ---- threads and memory


def test_vcpus_are_pinned_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [{"cpu-index": 1, "thread-id": 12}, {"cpu-index": 0, "thread-id": 11}]
    for thread in (10, 11, 12, 13):
        (tmp_path / "10" / "task" / str(thread)).mkdir(parents=True)
    done: dict[int, set[int]] = {}

    def place(thread: int, cpus: set[int]) -> None:
        if thread == 13:
            raise ProcessLookupError
        done[thread] = cpus

    monkeypatch.setattr("os.sched_setaffinity", place)
    pinning.pin(10, pinning.vcpu_threads(answer), CpuSet(cpus=[4, 6], others=[1, 2], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}, 10: {1, 2}}
    done.clear()
    pinning.pin(10, [11, 12], CpuSet(cpus=[4, 6], others=[], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}}, "without CPUs left, the others run anywhere"


def test_memory_is_rounded_and_huge_pages_are_all_or_none(tmp_path: Path) -> None:
    assert guest_host.round_memory(641, 1) == 642
    assert guest_host.round_memory(640, 3) == 642
    layout = topology.plan(host(SERVER), vcpus=2, duet=True)
    for node, free in ((0, 320), (1, 319)):
        place = tmp_path / f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"
        place.mkdir(parents=True)
        (place / "free_hugepages").write_text(f"{free}\n")
    assert guest_host.hugepage_kb(638, layout, tmp_path) == 2048
    assert guest_host.hugepage_kb(640, layout, tmp_path) is None, "node 1 lacks one"
    alone = topology.plan(host(LAPTOP), vcpus=1)
    assert guest_host.hugepage_kb(2, alone, tmp_path) is None, "no such folder"


def test_guests_that_do_not_fit_into_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9999999 kB\nMemAvailable: 1048576 kB\n")
    guest_host.require_memory(640, 1, tmp_path)
    with pytest.raises(HostFailed, match="2 guests at once need 1280 MiB of memory, and 1024 MiB are available"):
        guest_host.require_memory(640, 2, tmp_path)
