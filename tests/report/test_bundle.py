"""Bundles: made from a stored result, checked, run by a plain shell, and replayed to the last digit."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.core import records
from lab.core.errors import UserError
from lab.guests import exact, hardware, model_version, plugin
from lab.guests.exact import Qemu
from lab.guests.plugin import Instrument, Model
from lab.kernels.architecture import MachineType
from lab.report.bundle import archive, contents, texts, write
from lab.report.bundle import replay as bundle_replay
from lab.report.bundle.contents import Boot, Bundle, Expected, Guest, Plugin
from lab.report.inputs import StoredComparison

from ..fakes.bundle import VERSION, measured, write_qemu
from ..fakes.command import Lab
from ..fakes.packages import link, tar
from ..fakes.work import quiet


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: None) -> StoredComparison:
    return measured(monkeypatch, tmp_path)


@pytest.fixture
def bundle(tmp_path: Path, report: StoredComparison) -> Path:
    # A folder whose name is hard on a shell and on QEMU's comma-separated options.
    folder = tmp_path / "it's a, b"
    write.write(report, folder, quiet())
    return folder


OPTIONS = bundle_replay.ReplayOptions(qemu="qemu", guest_timeout_s=60)


def replay(path: Path) -> list[str]:
    return bundle_replay.replay(path, OPTIONS, quiet(jobs=2)).differences


def shell(folder: Path, *names: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "QEMU": str(folder.parent / "qemu"), **variables}
    return subprocess.run(
        ["sh", folder / "run.sh", *names], cwd="/", env=environment, capture_output=True, text=True, check=False
    )


# ---- made and run again


def test_a_bundle_replays_to_the_last_digit_and_does_not_tell_where_it_was_made(bundle: Path) -> None:
    found = bundle_replay.replay(bundle, OPTIONS, quiet(jobs=2))
    assert (found.guests, found.differences, found.environment) == (2, [], [])
    assert found.result == "measured", "its name, and nothing of where it was stored"
    files = [path for path in bundle.rglob("*") if path.is_file()]
    assert [path for path in files if str(bundle.parent).encode() in path.read_bytes()] == []


def test_a_guest_that_booted_again_does_so_in_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: None
) -> None:
    (tmp_path / "wrong flags").touch()
    folder = tmp_path / "bundle"
    write.write(measured(monkeypatch, tmp_path), folder, quiet())
    assert [boot.name for boot in contents.load(folder).bundle.boots] == ["mine base turn 2", "mine test turn 2"]
    assert replay(folder) == []
    done = shell(folder)
    assert done.returncode == 0, done.stderr


def test_a_shell_starts_qemu_as_the_lab_did_and_gets_the_same_bytes(
    bundle: Path, report: StoredComparison, tmp_path: Path
) -> None:
    done = shell(bundle)
    assert done.returncode == 0, done.stderr
    for arm in ("base", "test"):
        before = report.folder / "guests" / f"mine-{arm}-0001"
        now = bundle / "out" / before.name
        assert (now / "report.jsonl").read_bytes() == (before / "report.jsonl").read_bytes()
        assert not (now / "initrd.cpio").exists()
        argv = (before / "argv").read_text().replace(f"{before}/", "").replace(f"{tmp_path}/kernel-{arm}", "KERNEL")
        assert (now / "argv").read_text().replace(f"{bundle}/kernels/{arm}/bzImage", "KERNEL") == argv
    contents.check(bundle)
    assert replay(bundle) == [], "what run.sh wrote is no part of the bundle"


def test_a_shell_runs_the_guests_that_are_named(bundle: Path, tmp_path: Path) -> None:
    assert shell(bundle, "mine-test-0001", OUT=str(tmp_path / "else where")).returncode == 0
    assert [path.name for path in (tmp_path / "else where").iterdir()] == ["mine-test-0001"]
    done = shell(bundle, "mine-test")
    assert (done.returncode, done.stderr) == (2, "no guest is called: mine-test \n")


def test_a_shell_says_when_a_guest_reports_something_else(bundle: Path) -> None:
    program = write_qemu(bundle.parent / "qemu", version="9.9")
    program.write_text(program.read_text().replace('"mem_kb": 1', '"mem_kb": 2'))
    done = shell(bundle)
    assert done.returncode == 1
    assert "2 guests reported something else" in done.stderr and "9.9" in done.stderr


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
def test_a_bundle_in_one_file_replays(report: StoredComparison, tmp_path: Path, name: str) -> None:
    write.write(report, tmp_path / name, quiet())
    assert bundle_replay.is_bundle(str(tmp_path / name))
    assert replay(tmp_path / name) == []


# ---- what differs is said


def test_a_number_that_differs_is_named(bundle: Path) -> None:
    expected = records.load(bundle / "expected.json", Expected)
    guest = expected.guests["mine-test-0001"]
    now = guest.numbers["large"]["throughput"]
    guest.numbers["large"]["throughput"] += 1
    records.save(bundle / "expected.json", expected)
    contents.write(bundle)
    assert replay(bundle) == [f"mine:large throughput test seed 1: {now + 1} became {now}"]


def test_the_command_says_it_and_exits_4(bundle: Path, lab: Lab) -> None:
    assert lab("replay", str(bundle)).out == "measured: 2 guests run again, 0 numbers differ\n"
    kernel = next(bundle.glob("kernels/test/*Image"))
    kernel.write_bytes(b"another kernel")
    contents.write(bundle)
    said = lab("replay", str(bundle), status=4)
    assert said.out.count("throughput test seed 1") == 2 and "throughput base" not in said.out
    assert "2 numbers of measured came out differently" in said.err


@pytest.mark.parametrize("text", ["", "cpu = 7", "[[", "\x00"])
def test_a_machine_file_that_is_wrong_is_the_bundles_fault(bundle: Path, lab: Lab, text: str) -> None:
    (bundle / contents.MACHINE).write_text(text)
    contents.write(bundle)
    said = lab("replay", str(bundle), status=2).err
    assert said.startswith("lab: ") and str(bundle / contents.MACHINE) in said


def test_a_guest_that_fails_is_named(bundle: Path, lab: Lab) -> None:
    (bundle.parent / "qemu").write_text("#!/bin/sh\necho no >&2; exit 3\n")
    said = lab("replay", str(bundle), "--jobs", "1", status=4).err
    assert "lab: mine-base-0001: QEMU died with status 3: no" in said


# ---- checked before anything runs


def append(path: Path) -> None:
    with path.open("a") as stream:
        stream.write("x")


def move(path: Path) -> None:
    elsewhere = path.rename(path.parents[1].with_name("elsewhere"))
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(("act", "name", "said"), [
    (append, "kernels/base/bzImage", "kernels/base/bzImage was changed"),
    (append, "run.sh", "run.sh was changed"),
    (Path.unlink, "jobs/mine-base-0001.cpio", "jobs/mine-base-0001.cpio is missing"),
    (Path.unlink, "bundle.json", "bundle.json is missing"),
    (Path.unlink, "SHA256SUMS", "SHA256SUMS is missing"),
    (Path.touch, "plugin.c", "plugin.c is not in SHA256SUMS"),
    (move, "guests/mine.cpio", "guests/mine.cpio was changed"),
    (append, "SHA256SUMS", "is no checksum"),
])  # fmt: skip
def test_damage_is_named_and_nothing_is_run(
    bundle: Path, act: Callable[[Path], None], name: str, said: str, lab: Lab
) -> None:
    act(bundle / name)
    (bundle.parent / "qemu").write_text('#!/bin/sh\ntouch "$0.was-run"; exit 9\n')
    told = lab("replay", str(bundle), status=2)
    assert said in told.err and told.out == "" and "Traceback" not in told.err
    assert not (bundle.parent / "qemu.was-run").exists()


def test_a_sum_of_a_file_elsewhere_is_refused(bundle: Path) -> None:
    (bundle / "SHA256SUMS").write_text(f"{'0' * 64}  ../qemu\n")
    with pytest.raises(UserError, match="no checksum of a file in the bundle"):
        contents.check(bundle)


@pytest.mark.parametrize("path", ["/etc/passwd", "../qemu", "kernels", "kernels/none"])
def test_a_description_that_leads_elsewhere_is_refused(bundle: Path, path: str) -> None:
    told = records.load(bundle / "bundle.json", Bundle)
    boots = [replace(boot, kernel=path) for boot in told.boots]
    records.save(bundle / "bundle.json", replace(told, boots=boots))
    contents.write(bundle)
    with pytest.raises(UserError, match="which is no file of the bundle"):
        replay(bundle)


@pytest.mark.parametrize("name", ["../../x", "a/b", "-x", "$(touch x)", ""])
def test_a_guest_with_such_a_name_is_refused(bundle: Path, name: str) -> None:
    told = records.load(bundle / "bundle.json", Bundle)
    records.save(bundle / "bundle.json", replace(told, guests=[replace(told.guests[0], name=name)]))
    expected = records.load(bundle / "expected.json", Expected)
    records.save(bundle / "expected.json", Expected(guests={name: expected.guests["mine-base-0001"]}))
    contents.write(bundle)
    with pytest.raises(UserError, match=r"description of the guest .* is incomplete"):
        replay(bundle)


# ---- the archive


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("../evil", b"x")], "would leave the folder"),
        ([("b/../../evil", b"x")], "would leave the folder"),
        ([("/tmp/evil", b"x")], "would leave the folder"),  # noqa: S108
        ([link("b/link", "/etc")], "neither file nor folder"),
        ([link("b/link", "/etc/passwd", tarfile.LNKTYPE)], "neither file nor folder"),
        ([link("b/null", "", tarfile.CHRTYPE)], "neither file nor folder"),
        ([link("b/pipe", "", tarfile.FIFOTYPE)], "neither file nor folder"),
        ([link("b/sparse", "", tarfile.GNUTYPE_SPARSE)], "a header that no bundle has"),
        ([("b/" + "n" * 70_000, b"x")], "a header that no bundle has"),
        ([("b/one", b"1"), ("b/one", b"2")], "damaged"),
        ([("b/one", b"1"), ("b/one/two", b"2")], "damaged"),
        ([("b/one", b"1"), ("c/two", b"2")], "does not hold one folder"),
        ([("alone", b"1")], "does not hold one folder"),
        ([], "no bundle"),
    ],
)
def test_an_archive_that_leads_elsewhere_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes] | tarfile.TarInfo], said: str
) -> None:
    into = tmp_path / "deep" / "into"
    into.parent.mkdir()
    with pytest.raises(UserError, match=said):
        archive.unpack(tar(tmp_path / "b.tar", *members), into)
    assert not list(tmp_path.rglob("evil")) and not Path("/tmp/evil").exists()  # noqa: S108


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_an_archive_that_is_cut_off_is_refused(report: StoredComparison, tmp_path: Path, cut: float) -> None:
    path = tmp_path / "b.tar.zst"
    write.write(report, path, quiet())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(UserError, match="no bundle, or a damaged one"):
        archive.unpack(path, tmp_path / "into")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x28\xb5\x2f\xfdxxxx", b"\0" * 2000])
@pytest.mark.usefixtures("own_home")
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, content: bytes, lab: Lab) -> None:
    (tmp_path / "b").write_bytes(content)
    assert "is no bundle" in lab("replay", str(tmp_path / "b"), status=2).err


# ---- refused before anything is written


def test_where_it_goes_must_be_new(report: StoredComparison, tmp_path: Path, lab: Lab) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    words = ["report", str(report.folder), "--format", "bundle"]
    for more, said in (
        (["--output", str(tmp_path / "taken")], "is there already"),
        (["--output", str(tmp_path / "none" / "b.tar")], "there is no folder"),
        ([], "a bundle requires --output"),
        ([str(report.folder), "--output", str(tmp_path / "b")], "a bundle contains one result"),
    ):
        assert said in lab(*words, *more, status=2).err
    lab(*words, "--output", str(tmp_path / "good"))
    assert (tmp_path / "good" / "README.txt").is_file()
    assert not list(tmp_path.glob(".lab-bundle*"))


def test_what_cannot_be_put_together_is_refused_and_nothing_is_written(
    report: StoredComparison, tmp_path: Path
) -> None:
    live = StoredComparison(raw=replace(report.raw, mode="live"), folder=report.folder)
    with pytest.raises(UserError, match="live mode, whose numbers nothing repeats"):
        write.write(live, tmp_path / "b", quiet())
    (tmp_path / "slice.cpio").write_bytes(b"another root")
    with pytest.raises(UserError, match=r"cannot be made again: guests \(initrd_sha256\) differs"):
        write.write(report, tmp_path / "b", quiet())
    shutil.rmtree(report.folder / "runs")
    with pytest.raises(UserError, match="were not kept"):
        write.write(report, tmp_path / "b", quiet())
    assert not (tmp_path / "b").exists()


# ---- the cost plugin


def modelled(folder: Path) -> tuple[Bundle, Instrument]:
    for name in ("root", "kernel", "job", "machine.toml"):
        (folder / name).write_bytes(b"x")
    boot = Boot(
        workload="mine", arm="base", kernel="kernel", root="root", machine=MachineType.MICROVM, vcpus=1, memory_mb=64,
        append=["quiet"], model=Model.TLB,
    )  # fmt: skip
    guest = Guest(name="mine-base-0001", workload="mine", arm="base", seed=1, cases=["small"], job="job")
    told = Bundle(
        result="r", boots=[boot], guests=[guest], readings={}, plugin=Plugin(sources="other", machine="machine.toml")
    )
    return told, Instrument(library=Path("../libcost.so"), machine=hardware.load(), model=Model.TLB)


def test_a_shell_loads_the_plugin_from_a_place_without_commas(tmp_path: Path) -> None:
    told, instrument = modelled(tmp_path)
    text = texts.render(told, exact.exact_machine(), {"mine": instrument}, tmp_path, "7.2")
    assert "-plugin ../libcost.so,out=costs.jsonl,model=tlb,brackets=both,dtlb_4k=96:6," in text
    assert '"${PLUGIN:-$here/plugin/libcost.so}" "$out/libcost.so"' in text
    assert texts.BUILD in text and texts.BUILD.startswith("cc ")


@pytest.mark.parametrize("same_version", [True, False])
def test_a_plugin_of_the_same_version_is_the_labs_own(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_version: bool
) -> None:
    told, _ = modelled(tmp_path)
    assert told.plugin
    guests = contents.load(bundle).result.environment.guests
    version = model_version.current(guests) + (not same_version)
    told = replace(told, plugin=replace(told.plugin, model_version=version))
    opened = replace(contents.load(bundle), bundle=told, folder=tmp_path)
    monkeypatch.setattr(plugin, "obtain", lambda: tmp_path / "own")
    changes = bundle_replay._changed_environment(opened, Qemu(path="q", version=VERSION, numbers=(7, 2)))
    if same_version:
        assert bundle_replay._library(opened, tmp_path, OPTIONS) == tmp_path / "own"
        assert changes == []
    else:
        with pytest.raises(UserError, match="another cost plugin than this lab's") as caught:
            bundle_replay._library(opened, tmp_path, OPTIONS)
        assert caught.value.hint is not None and "--trust-plugin" in caught.value.hint
        assert changes == [f"{model_version.changes(version, guests)} (the bundle's plugin was run)"]


def test_options_of_a_bundle_are_not_for_results(report: StoredComparison, lab: Lab) -> None:
    assert "require a bundle" in lab("replay", str(report.folder), "--trust-plugin", status=2).err
