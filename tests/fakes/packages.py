"""Packages of three distributions with the same files, made by their own tools as far as Debian has these."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Epoch: {epoch}
Summary: A kernel
License: GPL-2.0-only
BuildArch: x86_64
AutoReqProv: no
%define _binary_payload {payload}
%define __strip /bin/true
%define __os_install_post %{{nil}}
%define _build_id_links none
%description
A kernel
%install
cp -a {files}/. %{{buildroot}}
%files
/*
"""


def rpm(files: Path, into: Path, *, payload: str = "w19.zstdio", epoch: int = 0, **of: str) -> Path:
    """A package by rpmbuild, with the payload that Fedora has."""
    if shutil.which("rpmbuild") is None:
        pytest.skip("rpmbuild is not installed")
    words = {"name": "kernel-core", "version": "6.12.1", "release": "200.fc41"} | of
    top = into / "rpmbuild"
    top.mkdir(parents=True)
    spec = SPEC.format(files=files, payload=payload, epoch=epoch, **words)
    (top / "kernel.spec").write_text(spec if epoch else spec.replace("Epoch: 0\n", ""))
    argv = ["rpmbuild", "-bb", "--quiet", "--target", "x86_64", "--define", f"_topdir {top}", top / "kernel.spec"]
    subprocess.run(argv, check=True, capture_output=True)
    (made,) = top.glob("RPMS/*/*.rpm")
    target = made.rename(into / made.name)
    shutil.rmtree(top)
    return target


def deb(files: Path, into: Path, *, name: str = "linux-image-6.12.1", version: str = "6.12.1-1", z: str = "xz") -> Path:
    """A package by dpkg-deb; z: what packs it, which is zstd in Ubuntu."""
    top = into / "dpkg"
    shutil.copytree(files, top, symlinks=True)
    (top / "DEBIAN").mkdir()
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: me\nDescription: a kernel\n"
    (top / "DEBIAN" / "control").write_text(control)
    target = into / f"{name}_{version}_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", f"-Z{z}", "--build", top, target], check=True, capture_output=True
    )
    shutil.rmtree(top)
    return target


def pacman(files: Path, into: Path, *, name: str = "linux", version: str = "6.12.1.arch1-1", z: str = "zst") -> Path:
    """A package as makepkg lays it out: its description first, then the files, as one packed tar."""
    info = into / ".PKGINFO"
    info.write_text(f"# made by makepkg\npkgname = {name}\npkgver = {version}\narch = x86_64\n")
    plain, target = into / "plain.tar", into / f"{name}-{version}-x86_64.pkg.tar.{z}"
    names = sorted(path.name for path in files.iterdir())
    subprocess.run(["tar", "-cf", plain, "-C", into, ".PKGINFO", "-C", files, *names], check=True)
    tool = {"zst": ["zstd", "-q", "-c"], "xz": ["xz", "-0", "-c"], "gz": ["gzip", "-c"]}[z]
    with target.open("wb") as stream:
        subprocess.run([*tool, plain], stdout=stream, check=True)
    plain.unlink()
    info.unlink()
    return target


def tar(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo) -> Path:
    """An archive of files, by name and content, and of what else it may hold."""
    with tarfile.open(path, "w") as stream:
        for one in members:
            info, content = (one, b"") if isinstance(one, tarfile.TarInfo) else (tarfile.TarInfo(one[0]), one[1])
            info.size = len(content)
            stream.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """A member of an archive that is no file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info
