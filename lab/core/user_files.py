"""Files that users name: packed or not, and never larger than they should be."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from pathlib import Path

from lab.core.errors import UserError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\0"


def unpacked(path: Path, most: int) -> bytes:
    """The content of a file that a user names: unpacked if gzip or xz packed it; UTF-8 if PowerShell wrote UTF-16.

    `UserError` for more bytes than `most`.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
        if data.startswith((_GZIP, _XZ)):
            opened = gzip.open if data.startswith(_GZIP) else lzma.open
            with opened(io.BytesIO(data)) as packed:
                data = packed.read(most + 1)
        if data[:2] == b"\xff\xfe":
            data = data.decode("utf-16").encode()
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > most:
        raise UserError(f"{path} is larger than the {most:,} bytes that such a file may have")
    return data.removeprefix(b"\xef\xbb\xbf")
