"""The check of a workload: by `lab workload check`, and of its needs before anything boots."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from lab.compare import check, comparison, measurement, result_folders, runs
from lab.compare.check import _require_kconfig, check_guest, check_parameters
from lab.compare.runs import GuestRun, Run
from lab.core.errors import UserError
from lab.guests import initrd
from lab.guests.run import Arm, RunningGuests
from lab.kernels import store
from lab.kernels.build import TreeSource
from lab.kernels.kernel import Kernel, KernelSpec
from lab.workloads import selection
from lab.workloads.spec import Workload

from ..fakes.command import Lab
from ..fakes.guest import IMAGE, WORKLOAD, FakeGuests, FakeInstrument, kernel, plan, pretend, write_workload
from ..fakes.kernel_image import elf
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")

SIZED = WORKLOAD.replace('"small"', '"small"\nmemory_mb = 400').replace('"large"', '"large"\nmemory_mb = 300')


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGuests:
    monkeypatch.setattr(Kernel, "configuration", lambda kernel: None)
    monkeypatch.setattr(check, "load_instrument", lambda machine, model: FakeInstrument())
    return pretend(monkeypatch, tmp_path, FakeGuests(lambda arm, seed, case: 12.5))


@pytest.fixture
def kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec that resolves without being looked at."""
    monkeypatch.setattr(check, "resolve", lambda text, **_: kernel("boot").spec)
    return "file:/boot/boot"


def test_what_is_sound_and_what_is_not(lab: Lab, guests: FakeGuests, tmp_path: Path) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)
    bad = write_workload(tmp_path / "bad", SIZED.replace("vcpus = 1", "vcpus = 0"))
    said = lab("workload", "check", mine, bad, "nothing", status=2).out.splitlines()
    assert said[0] == f"{mine}: ok, 2 cases, 0.0 MiB in the guest"
    assert said[1].startswith(f"{bad}: {bad}/workload.toml:5: ")
    assert "no workload is called 'nothing'" in said[2]
    assert guests.calls == []


def test_the_smallest_case_is_run(lab: Lab, guests: FakeGuests, kernel_file: str, tmp_path: Path) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)
    document = lab("workload", "check", mine, "--run", kernel_file, "--json").document
    assert document["schema"] == "lab.workload-check/1"
    (row,) = document["workloads"]
    assert (row["ok"], row["case"], row["metrics"]) == (True, "large", {"throughput": 12.5, "faults": 100.0})
    assert row["clocked"] is False
    assert guests.calls == [("check", 1, ("large",))] * 2


class Clocked(FakeGuests):
    """Guests whose large case does less where an instruction takes longer, but for its fixed share."""

    def __init__(self, fixed: float) -> None:
        super().__init__(lambda arm, seed, case: 12.5)
        self.fixed = fixed

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        run = super().measure(guest, running)
        pace = self.fixed + (1 - self.fixed) * 16 / 2**guest.bench.parameters.shift
        work = {case: 1.0 if case == "small" else pace for case in run.cases}
        costs = {
            case: {"cycles_p50": 1.0, "counted_operations": 4000 * pace, "user_instructions": 10.0}
            for case, pace in work.items()
        }
        return msgspec.structs.replace(run, costs=costs)


@pytest.mark.usefixtures("guests")
def test_clocked_work_is_refused(lab: Lab, kernel_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)

    def checked(share_that_is_fixed: float, status: int = 0) -> str:
        monkeypatch.setattr(runs, "measure", Clocked(share_that_is_fixed).measure)
        return lab("workload", "check", mine, "--run", kernel_file, status=status).out

    assert checked(0.0, status=2) == (
        f"{mine}: mine:large does as much work as the clock lets it: 4,000 operations where an instruction takes "
        "16 ns, 1,000 operations where it takes 64; give it a fixed number of operations; or measure it as it is, by "
        "--clocked for a command, or by clocked = true in its workload.toml\n"
    )
    assert checked(0.999).endswith("its work does not follow the clock\n")
    write_workload(tmp_path / "mine", SIZED.replace("vcpus", "clocked = true\nvcpus"))
    assert checked(0.0).endswith("its work follows the clock, as it says\n")


def test_a_comparison_refuses_it_too_and_asks_once(
    guests: FakeGuests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())
    mine = write_workload(tmp_path / "mine", WORKLOAD.replace('model = "none"', 'model = "tlb"'))
    for found in (Clocked(0.0), guests):
        monkeypatch.setattr(runs, "measure", found.measure)
        folder = result_folders.new_folder(None)
        with pytest.raises(UserError, match="mine:large does as much work as the clock lets it: 4,000 operations"):
            comparison.measure(plan(mine, model="auto"), folder, quiet())
        assert not list((folder / "runs").iterdir())
    assert guests.calls == [], "the second time it is known"
    write_workload(
        tmp_path / "mine", (tmp_path / "mine/workload.toml").read_text().replace("vcpus", "clocked = true\nvcpus")
    )
    assert comparison.measure(plan(mine, model="auto"), result_folders.new_folder(None), quiet()).verdict == "same"


# ---- before anything boots


def workload(tmp_path: Path, top: str) -> Workload:
    return selection.load(write_workload(tmp_path / "mine", WORKLOAD.replace("[[metric]]", f"{top}\n[[metric]]", 1)))


def require(chosen: Workload, names: tuple[str, ...] = (), which: Kernel | None = None, **settings: str) -> None:
    arm = Arm(name="test", kernel=which or kernel("test"), settings=settings)
    check_guest(chosen, [chosen.case(name) for name in names], [arm], (IMAGE, Path("/image")))


def built(config: str) -> Kernel:
    source = TreeSource(tree="t", commit="c", tree_id="i", build_commit="c", subject="s", describe="d")
    folder = store.folder_of("f" * 64)
    folder.mkdir(parents=True)
    (folder / "config").write_text(config)
    spec = KernelSpec(text="v6.12", source=source)
    return dataclasses.replace(kernel("test"), spec=spec, key="f" * 64, config=folder / "config")


CONFIG = "CONFIG_AIO=y\nCONFIG_BLK_DEV_NULL_BLK=m\n# CONFIG_IO_URING is not set\nCONFIG_HZ=250\n"


@pytest.mark.parametrize(("option", "words"), [
    ("CONFIG_IO_URING", "needs CONFIG_IO_URING, which is not set in v6.12"),
    ("CONFIG_NEVER_HEARD_OF", "needs CONFIG_NEVER_HEARD_OF, which is not set"),
    ("CONFIG_BLK_DEV_NULL_BLK", "which is a module, which no guest loads, in v6.12"),
])  # fmt: skip
def test_a_kernel_without_an_option_is_refused(tmp_path: Path, option: str, words: str) -> None:
    with pytest.raises(UserError, match=f"workload mine .*{words}") as caught:
        require(workload(tmp_path, f'kconfig = ["CONFIG_AIO", "{option}"]'), which=built(CONFIG))
    assert f"%{option}=y" in str(caught.value.hint)


def test_an_option_for_some_job_files_is_needed_by_these_alone(tmp_path: Path) -> None:
    for name, directory in (("tmp", "directory=/tmp"), ("null", "filename=/dev/nullb0")):
        (tmp_path / f"{name}.fio").write_text(f"[job]\n{directory}\nioengine=psync\n")
    fio, plain = selection.select(f"fio:{tmp_path / 'tmp.fio'}")
    null = selection.select(f"fio:{tmp_path / 'null.fio'}")[1]
    arm = Arm(name="test", kernel=built(CONFIG + "CONFIG_HUGETLBFS=y\nCONFIG_SYSVIPC=y\n"), settings={})
    _require_kconfig(fio, plain, arm)
    with pytest.raises(UserError, match="workload fio needs CONFIG_BLK_DEV_NULL_BLK, which is a module"):
        _require_kconfig(fio, [*plain, *null], arm)


def test_the_configuration_beside_a_packaged_kernel_counts(tmp_path: Path) -> None:
    (tmp_path / "config-6.99").write_text(CONFIG)
    boot = dataclasses.replace(kernel("test"), config=tmp_path / "config-6.99")
    assert boot.configuration() == {
        "CONFIG_AIO": "y", "CONFIG_BLK_DEV_NULL_BLK": "m", "CONFIG_IO_URING": "n", "CONFIG_HZ": "250",
    }  # fmt: skip
    with pytest.raises(UserError, match="a module") as caught:
        require(workload(tmp_path, 'kconfig = ["CONFIG_BLK_DEV_NULL_BLK"]'), which=boot)
    assert "build one from a tree" in str(caught.value.hint)


def test_more_huge_pages_than_memory_are_refused(tmp_path: Path) -> None:
    chosen = workload(tmp_path, "hugepages = 100")
    require(chosen)
    with pytest.raises(UserError, match=r"test arm .*: 256 huge pages are 512 MiB, .* has 512 MiB in all"):
        require(chosen, hugepages="256")


def test_a_case_that_needs_more_than_the_guest_has_is_refused(tmp_path: Path) -> None:
    chosen = workload(tmp_path, "case_pattern = 'chase-(?P<memory>[0-9]+[kmg])'")
    assert chosen.case("chase-64m").memory_mb == 64 and chosen.case("chase-64k").memory_mb == 1
    with pytest.raises(UserError, match="mine:chase-1g needs 1024 MiB, and its guest has 512 MiB"):
        chosen.case("chase-1g")


def test_a_name_that_the_program_does_not_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = workload(tmp_path, "case_pattern = '.*'\ncase_names = ['--names']")
    asked = []

    def run_inside(root: Path, program: str, arguments: tuple[str, ...]) -> str:
        asked.append((str(root), program, *arguments))
        return "malloc mmap brk\n"

    monkeypatch.setattr(initrd, "run_inside", run_inside)
    require(chosen, ("small", "mmap"))
    assert asked == [("/image/root", "/usr/bin/mine", "--names")], "the declared ones need no list"
    with pytest.raises(UserError, match="workload mine has no case 'maloc'") as caught:
        require(chosen, ("maloc",))
    assert caught.value.hint == "did you mean malloc?"


def test_a_kernel_must_know_the_parameters_of_its_command_line(tmp_path: Path) -> None:
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(elf() + b"\0rcupdate.rcu_expedited\0")
    known = dataclasses.replace(kernel("test"), vmlinux=vmlinux)

    def check_with(**settings: str) -> None:
        check_parameters(Arm(name="test", kernel=known, settings=settings))

    check_with(**{"cmdline.rcupdate.rcu_expedited": "1", "sysctl.vm.swappiness": "1", "env.A": "1"})
    check_with(**{"cmdline.ext4.debug": "1", "mount.fs": "ext4"})
    with pytest.raises(UserError, match=r"so cmdline\.rcupdate\.expedited has no") as caught:
        check_with(**{"cmdline.rcupdate.expedited": "1"})
    assert caught.value.hint == "did you mean rcupdate.rcu_expedited?"
    with pytest.raises(UserError, match="nothing in this kernel is called nosuch"):
        check_with(**{"cmdline.nosuch": ""})
