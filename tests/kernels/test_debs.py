"""Packages by version and by name, with apt's programs played by scripts."""

import os
import shutil
from pathlib import Path

import pytest

from lab.core.errors import HostFailed, UserError
from lab.core.paths import cache_dir
from lab.core.progress import Progress
from lab.guests import kvm
from lab.kernels import kernel, package_lists
from lab.kernels.debs import DebSource, downloaded, matching, resolve, source_of
from lab.kernels.files import modules_of
from lab.kernels.package_lists import all_suites

from ..fakes.command import Lab
from ..fakes.kernel_image import bzimage, elf
from ..fakes.work import quiet

# The lists are files: of the host in `host`, of all suites in `suites`, once they are fetched from `mirror`.
APT = Path(__file__).with_name("apt")


def asked(apt: Path) -> list[str]:
    return (apt / "asked").read_text().splitlines() if (apt / "asked").exists() else []


@pytest.fixture(autouse=True)
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(APT, tmp_path / "apt"))
    (folder / "sources").touch()
    (folder / "suites").mkdir()
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(package_lists, "_KEYRING", keyring)
    (folder / "bzImage").write_bytes(bzimage(elf(config=False)))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_APT", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ("6.1", "linux-image-6.1.0-56-cloud-amd64"),
        ("6.1.170", "linux-image-6.1.0-50-cloud-amd64"),
        ("6.12", "linux-image-6.12.117+deb12-cloud-amd64"),
        ("6.12.9", "linux-image-6.12.9+deb12-cloud-amd64"),
        ("6.12.118", "linux-image-6.12.118+deb12-cloud-amd64-unsigned"),
        ("7.2", "linux-binary-7.2.12-cloud-amd64"),
        ("linux-image-7.2-cloud-amd64", "linux-binary-7.2.12-cloud-amd64"),
        ("linux-binary-unsigned-7.2.12-cloud-amd64", "linux-binary-unsigned-7.2.12-cloud-amd64"),
        ("linux-image-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64"),
        ("linux-image-6.1.0-50-cloud-amd64", "linux-image-6.1.0-50-cloud-amd64"),
        # Of a suite that the host does not have: with its version, after one look at all suites.
        ("trixie-backports/7.2", "linux-binary-7.2.13+deb13-cloud-amd64=7.2.13-1~bpo13+1"),
        ("trixie-backports/7.2.14", "linux-binary-unsigned-7.2.14+deb13-cloud-amd64=7.2.14-1~bpo13+1"),
        ("trixie-backports/linux-image-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1"),
        ("trixie/6.12", "linux-image-6.12.107+deb13-cloud-amd64=6.12.107-1"),
        ("bookworm/6.1", "linux-image-6.1.0-57-cloud-amd64=6.1.193-1"),
        ("6.16", "linux-image-6.16.12+deb12-cloud-amd64=6.16.12-1~bpo12+1"),
        ("7.3.4-1~bpo13+1", "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1"),
        ("linux-image-7.3.4+deb13-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1"),
    ],
)
def test_resolved_on_the_host_or_in_any_suite(body: str, label: str, apt: Path) -> None:
    found, is_elsewhere = resolve(body), "=" in label
    assert (found.label if is_elsewhere else found.package) == label
    assert asked(apt) == ["update"] * is_elsewhere


def test_a_package_is_downloaded_once_from_the_lists_that_have_it_and_unpacked(apt: Path) -> None:
    resolve("7.3").fetch()
    source = resolve("6.12")
    folder = source.fetch()
    assert folder.name == "linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1"
    assert sorted(path.name for path in folder.iterdir()) == ["boot", "lib"]
    assert source.fetch() == folder
    assert asked(apt) == [
        "update",
        "suites linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1",
        "linux-image-6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1",
    ]


def test_lists_are_renewed_once_a_day_or_on_request(apt: Path) -> None:
    resolve("7.3")
    resolve("7.3")
    assert asked(apt) == ["update"]
    fetched = cache_dir("packages") / "fetched"
    fetched.write_text('{"files": {}}')  # as labs wrote it that kept digests
    resolve("7.3")
    assert asked(apt) == ["update"]
    os.utime(fetched, (0, 0))
    resolve("7.3")
    assert asked(apt) == ["update"] * 2
    all_suites(refresh=True)
    assert asked(apt) == ["update"] * 3


def test_the_sources_are_on_the_hosts_mirror(apt: Path) -> None:
    (apt / "sources").write_text(
        "https://mirror.test/pub/debian/ bookworm\n"
        "https://mirror.test/pub/debian-security/ bookworm-security\n"
        "http://snapshot.test/archive/debian/20250520T000000Z/ trixie\n"
        "http://others.test/debian/ nodistro\n"
    )
    all_suites()
    folder = cache_dir("packages")
    sources = (folder / "sources.list").read_text().splitlines()
    options = f"[arch=amd64 signed-by={package_lists._KEYRING} target=Packages]"
    assert sources[0] == f"deb {options} https://mirror.test/pub/debian bookworm main"
    assert sources[2] == f"deb {options} https://mirror.test/pub/debian-security bookworm-security main"
    assert [line.split()[-2] for line in sources] == list(package_lists.SUITES)
    assert f'Dir::State "{folder}";' in (folder / "apt.conf").read_text()
    (apt / "sources").write_text("cdrom://[Debian]/debian/ bookworm\n")
    all_suites(refresh=True)
    assert "http://deb.debian.org/debian bookworm main" in (folder / "sources.list").read_text()


def test_without_a_network_the_lists_are_those_of_before(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (apt / "offline").touch()
    (apt / "mirror").rename(apt / "away")
    with pytest.raises(HostFailed, match=r"cannot fetch the package lists of Debian's suites: .*Failed to fetch") as no:
        resolve("7.3")
    assert no.value.hint == "check the network"
    assert resolve("6.12").package == "linux-image-6.12.117+deb12-cloud-amd64"
    (apt / "away").rename(apt / "mirror")  # apt fetched what it could
    with Progress() as progress:
        assert resolve("7.3", progress).version == "7.3.4-1~bpo13+1"
    assert "some package lists are missing or old: apt-get exited with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "deb:5.10",
            "no cloud-amd64 kernel of version 5.10 in any suite of Debian",
            "kernels of 6.1, 6.12, 6.16, 7.2, 7.3",
        ),
        ("deb:trixie/7.2", "of version 7.2 in trixie", "it is in trixie-backports; there are kernels of 6.12"),
        ("deb:trixy/6.12", "no suite called trixy", "did you mean trixie?"),
        ("deb:trixie-backports", "no package called trixie-backports", "write deb:trixie-backports/VERSION"),
        ("deb:trixie/", "deb:trixie/ names no kernel", "deb:trixie-backports/7.2"),
        (
            "deb:linux-image-7.3.5+deb13-cloud-amd64",
            "no package called linux-image-7.3.5",
            "did you mean deb:linux-image-7.3.4+deb13-cloud-amd64",
        ),
        ("deb:trixie/linux-image-7.3.4+deb13-cloud-amd64", "no package called linux-image-7.3.4", "did you mean"),
        ("deb:--help", "no package called --help", "give a version (deb:6.12) or a linux-image package"),
        ("deb:x; touch y", "no package called x; touch y", "give a version"),
        ("deb:linux-image-loop-amd64", "the package linux-image-loop-amd64 depends on itself", ""),
        ("src:7.4", "no source package of Linux 7.4 in any suite of Debian", "there is one of 7.2, 7.3"),
        ("src:bookworm/7.2", "no source package of Linux 7.2 in bookworm", "7.2, 7.3"),
        ("src:linux", "src:linux names no version", "src:7.2"),
        ("src:nowhere/7.2", "no suite called nowhere", "trixie"),
    ],
)
def test_unknown_ones_are_the_users(text: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        kernel.resolve(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_series_is_of_the_host_or_of_all_suites() -> None:
    def names(pattern: str) -> list[str]:
        return [package.name for package in matching(pattern)]

    of_the_host = ["linux-image-6.1.0-50-cloud-amd64", "linux-image-6.1.0-56-cloud-amd64"]
    assert names("linux-image-6.1.*-cloud-amd64") == of_the_host
    assert [package.label for package in matching("linux-binary-7.[23]*+deb13-cloud-amd64")] == [
        "linux-binary-7.2.13+deb13-cloud-amd64=7.2.13-1~bpo13+1",
        "linux-binary-7.3.4+deb13-cloud-amd64=7.3.4-1~bpo13+1",
    ]
    assert names("bookworm/linux-image-6.*") == [*of_the_host, "linux-image-6.1.0-57-cloud-amd64"]


def test_what_was_downloaded_is_listed(own_home: Path, lab: Lab) -> None:
    assert "no kernel was built or downloaded" in lab("kernel", "list").err
    image, other = (cache_dir(name) / "linux-image-7.2_1" / "boot" / "vmlinuz-7.2" for name in ("debs", "debs-arm64"))
    for path in (image, other):
        path.parent.mkdir(parents=True)
        path.touch()
    assert lab("kernel", "list").out == f"package  {other}\npackage  {image}\n"
    tried = list(kvm.kernels_to_try())
    assert image in tried and other not in tried, "KVM runs the host's own architecture alone"


def test_what_is_available(lab: Lab) -> None:
    assert lab("kernel", "list", "--available", "backports", "7.").out.splitlines() == [
        "suite             package                                         version",
        "trixie-backports  linux-binary-7.2.13+deb13-cloud-amd64           7.2.13-1~bpo13+1",
        "trixie-backports  linux-binary-unsigned-7.2.14+deb13-cloud-amd64  7.2.14-1~bpo13+1",
        "trixie-backports  linux-binary-7.3.4+deb13-cloud-amd64            7.3.4-1~bpo13+1",
    ]
    document = lab("kernel", "list", "--available", "--json", "trixie", "6.12").document
    assert document["schema"] == "lab.packages/1"
    assert document["packages"] == [
        {"suite": "trixie", "package": "linux-image-6.12.107+deb13-amd64", "version": "6.12.107-1"},
        {"suite": "trixie", "package": "linux-image-6.12.107+deb13-cloud-amd64", "version": "6.12.107-1"},
    ]
    assert "no such kernel package in any suite" in lab("kernel", "list", "--available", "5.10").err
    assert "7.2 requires --available" in lab("kernel", "list", "7.2", status=2).err
    assert "--arch requires --available" in lab("kernel", "list", "--arch", "arm64", status=2).err


def test_no_network_leaves_nothing(apt: Path) -> None:
    source = DebSource(package="linux-image-6.1.0-56-cloud-amd64", version="6.1.192-2")
    (apt / "offline").touch()
    with pytest.raises(HostFailed, match="cannot download"):
        source.fetch()
    (apt / "offline").unlink()
    (apt / "empty").touch()
    with pytest.raises(UserError, match="contains no kernel"):
        source.fetch()
    (apt / "empty").unlink()
    assert source.fetch().is_dir()


def test_the_kernel_of_7_2_is_among_its_modules_which_have_a_package_of_their_own_as_its_kconfig(apt: Path) -> None:
    source = resolve("7.2")
    found = source.obtain(quiet())
    assert asked(apt) == [f"linux-{part}-7.2.12-cloud-amd64=7.2.12-1" for part in ("binary", "base", "modules")]
    folder = source.fetch() / "usr" / "lib" / "modules" / "6.12.1-test"
    assert (found.bzimage, found.config) == (folder / "vmlinuz", folder / "config")
    assert found.symbols == folder / "System.map"
    assert modules_of(folder / "vmlinuz", found.release) == folder == found.modules
    assert (folder / "kernel" / "fs" / "xfs.ko").exists()
    assert list(downloaded("x86_64")) == [folder / "vmlinuz"]
    assert "linux-binary-7.2.12-cloud-amd64" in " ".join(source.provenance(apt)) and (apt / "config").exists()


@pytest.mark.parametrize(("body", "version"), [
    ("7.2", "7.2.13-1~bpo13+1"),
    ("trixie-backports/7.2", "7.2.13-1~bpo13+1"),
    ("7.2.9", "7.2.9-1~bpo13+1"),
    ("7.3", "7.3.4-1~bpo13+1"),
])  # fmt: skip
def test_the_newest_source_of_a_version(apt: Path, body: str, version: str) -> None:
    lists, offer = source_of(body)
    assert (offer.suite, offer.version) == ("trixie-backports", version)
    assert offer in lists.offers([offer.package])
