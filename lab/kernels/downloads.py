"""Files from the network: downloaded once, checked by their digest, and kept in the cache by it.

A user's `lab.toml` names the addresses of other distributions' archives; the lab knows none.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from lab.core import paths, process, records, settings
from lab.core.errors import HostFailed, UserError
from lab.core.locks import make_once
from lab.core.progress import Progress
from lab.core.text import visible

_LARGEST = 4 << 30
_PAGE_MAX = 8 << 20
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_MARK = "#sha256="

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:^-]*")
_LINK = re.compile(rb"""href=["']?([^"'?#<> ]+)""", re.IGNORECASE)


def asked(text: str) -> tuple[str, str]:
    """The address and the digest of `https://ADDRESS#sha256=HEX`."""
    address, digest = split(text)
    if digest is None:
        raise UserError(
            f"{visible(text)}: a download needs its digest",
            hint=f"write {visible(address)}#sha256=HEX, with the digest that its publisher names or `sha256sum` prints",
        )
    return address, digest


def split(text: str) -> tuple[str, str | None]:
    """An address, and the digest behind its `#sha256=`, if it has one."""
    address, mark, digest = text.partition(_MARK)
    if mark and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise UserError(f"{text}: a SHA-256 has 64 hexadecimal digits", hint="`sha256sum FILE` prints it")
    return address, digest.lower() if mark else None


def of_scheme(name: str, version: str, progress: Progress) -> tuple[Path, str, str]:
    """The package of a version, by the address that the user's settings have for a name: file, address and digest.

    `{upstream}` and `{release}` are the version's parts before and behind its first hyphen. A `*` in the last part of
    the address is looked up in the page of its folder.
    """
    body, digest = split(version)
    if not _VERSION.fullmatch(body) or ".." in body:
        raise UserError(f"{name}:{visible(body)}: not a version", hint=f"write e.g. {name}:6.12.4")
    upstream, _, release = body.partition("-")
    address = settings.load().kernels[name]
    for word, value in (("version", body), ("upstream", upstream), ("release", release)):
        address = address.replace(f"{{{word}}}", value)
    if not re.match(r"https?://", address) or re.search(r"[{}]", address):
        raise UserError(
            f"{settings.file()}: kernels.{name} is not the address of a package",
            hint='write e.g. "https://HOST/linux-{version}-x86_64.pkg.tar.zst"; {upstream} and {release} are its parts',
        )
    known = paths.cache_dir("downloads", "addresses") / f"{records.digest(address)[:24]}.json"
    if (kept := records.find(known, _Known)) and (digest or kept.sha256) == kept.sha256:
        return fetch(kept.address, kept.sha256, progress), kept.address, kept.sha256
    found = _found(address) if "*" in address else address
    path, sha256 = (fetch(found, digest, progress), digest) if digest else _first(found, progress)
    records.save(known, _Known(address=found, sha256=sha256))
    return path, found, sha256


class _Known(records.Record, frozen=True, kw_only=True):
    """The file behind an address without a digest, as first downloaded."""

    address: str
    sha256: str


def _found(pattern: str) -> str:
    """The one address that is like a pattern, by the links of its folder's page."""
    folder, _, wanted = pattern.rpartition("/")
    with _opened(f"{folder}/") as stream:
        page = stream.read(_PAGE_MAX)
    links = {unquote(match[1].decode(errors="replace")) for match in _LINK.finditer(page)}
    names = sorted({link.rpartition("/")[2] for link in links if fnmatchcase(link.rpartition("/")[2], wanted)})
    if len(names) != 1:
        some = f"{len(names)} files are like {wanted}" + (f": {', '.join(map(visible, names[:4]))}" if names else "")
        raise UserError(f"{folder}/: {some}", hint="the address in lab.toml must mean one")
    return urljoin(f"{folder}/", names[0])


def fetch(address: str, sha256: str, progress: Progress) -> Path:
    """The file with a digest, from the cache, or else from its address."""
    folder = _folder(sha256)
    if not folder.is_dir():
        make_once(folder, lambda partial: _download(address, partial, sha256, progress), progress=progress)
    return next(folder.iterdir())


def _first(address: str, progress: Progress) -> tuple[Path, str]:
    """The file of an address without a given digest, and its digest."""
    with process.scratch(".new-", paths.cache_dir("downloads")) as new:
        _download(address, new, None, progress)
        (file,) = new.iterdir()
        sha256 = records.file_digest(file)
        make_once(_folder(sha256), lambda partial: _moved(file, partial), progress=progress)
    return next(_folder(sha256).iterdir()), sha256


def _moved(file: Path, folder: Path) -> None:
    shutil.move(file, folder)


def _folder(sha256: str) -> Path:
    return paths.cache_dir("downloads") / sha256[:24]


def _download(address: str, folder: Path, sha256: str | None, progress: Progress) -> None:
    """Download a file into a folder, and check its digest, if it is known."""
    progress.log_once(f"downloading {visible(address)}")
    name = re.sub(r"[^A-Za-z0-9._+~-]", "_", unquote(urlsplit(address).path).rpartition("/")[2]).lstrip(".") or "file"
    digest, size = hashlib.sha256(), 0
    target = folder / name[-200:]
    with paths.writing(target), _opened(address) as stream, target.open("wb") as into:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > _LARGEST:
                raise UserError(f"{address} is larger than {_LARGEST >> 30} GiB", hint="no kernel's package is")
            digest.update(chunk)
            into.write(chunk)
        if (promised := stream.headers.get("Content-Length")) and promised != str(size):
            raise HostFailed(f"{address} ended after {size} of {promised} bytes", hint="check the network; then repeat")
    found = digest.hexdigest()
    if sha256 not in (None, found):
        raise UserError(
            f"{address} has another SHA-256 than was asked for: {found}",
            hint="the file was replaced or damaged; compare the digest with that of its publisher",
        )


@contextmanager
def _opened(address: str) -> Iterator[HTTPResponse]:
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "kernel-ab-lab"})  # noqa: S310  (http or https)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as stream:  # noqa: S310
            yield stream
    except urllib.error.HTTPError as error:
        raise UserError(f"{address}: {error.code} {error.reason}", hint="check the address") from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error
        raise HostFailed(f"cannot download {address}: {visible(str(reason))}", hint="check the network") from error
    except ValueError as error:
        raise UserError(f"{visible(address)}: not an address: {error}") from error
