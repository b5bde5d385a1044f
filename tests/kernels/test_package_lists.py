"""The lab's own package lists, fetched by the real apt from a small archive."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.core.errors import DiskFull, HostFailed
from lab.core.progress import Progress
from lab.kernels import debs, package_lists
from lab.kernels.package_lists import Offer, all_suites

PACKAGES = """\
Package: linux-image-6.12.107+deb13-cloud-amd64
Version: 6.12.107-1
Architecture: amd64
Depends: kmod
Filename: pool/linux-image.deb
Size: 1
SHA256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

"""


@pytest.fixture
def archive(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed archive with the one suite that there is. Its parameter: more lines of the suite's Release."""
    for tool in ("apt-get", "apt-cache", "gpg"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir(mode=0o700)
    folder = tmp_path / "debian"
    index = folder / "dists" / "trixie" / "main" / "binary-amd64" / "Packages"
    index.parent.mkdir(parents=True)
    index.write_text(PACKAGES)
    digest = hashlib.sha256(PACKAGES.encode()).hexdigest()
    release = index.parents[2] / "Release"
    release.write_text(
        "Origin: Debian\nSuite: stable\nCodename: trixie\nArchitectures: amd64\nComponents: main\n"
        f"Date: Mon, 01 Jan 2024 00:00:00 UTC\n{getattr(request, 'param', '')}"
        f"SHA256:\n {digest} {len(PACKAGES)} main/binary-amd64/Packages\n"
    )
    gpg = ("gpg", "--batch", "--quiet", "--passphrase", "")
    keyring = tmp_path / "keyring.gpg"
    for words in (
        ("--quick-generate-key", "archive@localhost", "ed25519", "sign", "never"),
        ("--output", str(keyring), "--export"),
        ("--output", str(release.with_name("InRelease")), "--clearsign", str(release)),
    ):
        subprocess.run([*gpg, *words], check=True)
    # gpg leaves its agent running.
    subprocess.run(["gpgconf", "--kill", "all"], check=True)
    monkeypatch.setattr(package_lists, "SUITES", ("trixie",))
    monkeypatch.setattr(package_lists, "_KEYRING", keyring)
    # As root, apt would read the archive as a user who has no access to the folders of tests.
    own = f'APT::Sandbox::User "{tmp_path.owner()}";\nAcquire::Check-Date "true";\nAcquire::Check-Valid-Until "true";\n'
    monkeypatch.setattr(package_lists, "_CONFIGURATION", package_lists._CONFIGURATION + own)
    monkeypatch.setattr(package_lists, "_mirrors", lambda: {"debian": folder.as_uri()})
    return folder


def test_a_signed_archive_is_read(archive: Path) -> None:
    lists = all_suites()
    assert debs.kernels(lists) == [Offer("trixie", "linux-image-6.12.107+deb13-cloud-amd64", "6.12.107-1")]
    (entry,) = lists.entries("linux-image-6.12.107+deb13-cloud-amd64")
    assert entry["Depends"] == "kmod"


@pytest.mark.parametrize("archive", ["Valid-Until: Mon, 08 Jan 2024 00:00:00 UTC\n"], indirect=True)
def test_lists_that_expired_are_taken_and_called_old(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        assert [offer.suite for offer in debs.kernels(all_suites(progress))] == ["trixie"]
    assert "the mirror has old package lists, which are taken as they are: apt-get exited" in capsys.readouterr().err


def test_a_full_disk_is_called_that(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=60 << 20))
    with pytest.raises(DiskFull, match="60 MiB free, fetching the package lists needs 64 MiB"):
        all_suites()


@pytest.mark.parametrize("fault", ["unsigned", "another key", "another list"])
def test_an_archive_without_a_good_signature_is_refused(
    fault: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "unsigned":
        (archive / "dists" / "trixie" / "InRelease").unlink()
    if fault == "another key":
        monkeypatch.setattr(package_lists, "_KEYRING", Path("/usr/share/keyrings/debian-archive-keyring.gpg"))
    if fault == "another list":
        index = archive / "dists" / "trixie" / "main" / "binary-amd64" / "Packages"
        index.write_text(PACKAGES.replace("6.12.107-1", "6.12.108-1"))
    with pytest.raises(HostFailed, match=r"cannot fetch the package lists of Debian's suites: apt-get exited with"):
        all_suites()
