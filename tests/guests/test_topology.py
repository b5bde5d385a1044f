"""Seats and QEMU command lines on hosts of several shapes, from what lscpu says of them."""

import msgspec
import pytest

from lab.core.errors import HostFailed, UserError
from lab.guests import live_machine, topology
from lab.guests.live_machine import LiveGuest
from lab.guests.topology import Layout, Shape

from ..fakes.lscpu import HYBRID, LAPTOP, SERVER, host


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
    assert qemu(layout) == f"{ONE_NODE} -object memory-backend-ram,id=mem0,size=1024M,{RAM},prealloc-threads=2{REST}"


def test_more_vcpus_than_cores_are_threads_of_cores() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=4)
    assert cpu_sets(layout) == [([0, 2, 1, 3], [])], "vCPUs 0 and 1 are one guest core, and one host core"
    assert layout.shape.smp == "4,sockets=1,cores=2,threads=2" and layout.cpu_sets[0].others == []


def test_a_server_gives_one_node_and_binds_the_memory_to_it() -> None:
    layout = topology.plan(host(SERVER), vcpus=4)
    assert cpu_sets(layout) == [([0, 1, 2, 3], [0])]
    assert layout.cpu_sets[0].others == [4, 5, 52, 53], "of the same node, and no thread of the guest's cores"
    memory_words = f"-object memory-backend-ram,id=mem0,size=1024M,{RAM},prealloc-threads=4,host-nodes=0,policy=bind"
    assert qemu(layout) == f"{ONE_NODE} {memory_words}{REST}"


def test_a_guest_too_large_for_a_node_gets_more_of_them() -> None:
    layout = topology.plan(host(SERVER), vcpus=24)
    assert layout.shape.smp == "24,sockets=2,cores=6,threads=2" and layout.cpu_sets[0].nodes == [0, 1]
    assert qemu(layout) == (
        f"{MORE_NODES}"
        f" -object memory-backend-ram,id=mem0,size=512M,{RAM},prealloc-threads=12,host-nodes=0,policy=bind"
        " -numa node,nodeid=0,memdev=mem0,cpus=0-11"
        f" -object memory-backend-ram,id=mem1,size=512M,{RAM},prealloc-threads=12,host-nodes=1,policy=bind"
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
    for duet, nodes in ((False, 8), (True, 4)):
        assert topology.plan(host(SERVER), vcpus=None, duet=duet).shape == Shape(nodes=nodes, cores=6, threads=2)
    layout = topology.plan(host("two-sockets-interleaved"), vcpus=None, duet=True)
    assert layout.cpu_sets[0].cpus == [0, 12, 2, 14, 4, 16, 6, 18, 8, 20, 10, 22]
    assert layout.cpu_sets[1].cpus == [1, 13, 3, 15, 5, 17, 7, 19, 9, 21, 11, 23]
    assert topology.plan(host(LAPTOP), vcpus=None, duet=True).shape == Shape(nodes=1, cores=1, threads=2)


def test_too_few_cpus() -> None:
    with pytest.raises(UserError, match="2 CPUs on 2 cores in 1 NUMA node") as refused:
        topology.plan(host("two-cores-guest"), vcpus=2, duet=True)
    assert refused.value.hint and "without --duet" in refused.value.hint
    for name, vcpus, nodes, words in (
        ("two-cores-guest", 4, None, "1 guest with 4 vCPUs each"),
        (SERVER, 3, 2, "evenly"),
        ("two-cores-guest", None, 2, "like itself"),
    ):
        with pytest.raises(UserError, match=words):
            topology.plan(host(name), vcpus=vcpus, nodes=nodes)


def test_lscpu_in_all_its_forms() -> None:
    assert host("words-for-numbers") == host(LAPTOP)
    off = b'{"cpu": 1, "core": null, "socket": null, "node": null, "online": false}'
    assert [one.cpu for one in topology.read(b'{"cpus": [{"cpu": 0, "online": true}, %s]}' % off)] == [0]
    for broken in (b"", b"[]", b'{"cpus": [{}]}', b'{"cpus": []}', b'{"cpus": [{"cpu": 0, "online": false}]}'):
        with pytest.raises(HostFailed, match="lscpu"):
            topology.read(broken)
    bare = topology.read(b'{"cpus": [{"cpu": 0}, {"cpu": 1}]}')
    assert [(one.core, one.node) for one in bare] == [(0, 0), (1, 0)]
