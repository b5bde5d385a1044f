"""Root without its privilege to read every file, so that a file's mode holds for it as for any user."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_READS_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH (linux/capability.h)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def none() -> Iterator[None]:
    """Take the privilege from this thread, and give it back."""
    if os.geteuid() != 0:
        yield
        return
    libc, header, data = ctypes.CDLL(None, use_errno=True), _Header(_VERSION_3, 0), (_Data * 2)()
    _require(libc.capget(ctypes.byref(header), data))
    had = data[0].effective
    data[0].effective = had & ~_READS_ALL
    _require(libc.capset(ctypes.byref(header), data))
    try:
        yield
    finally:
        data[0].effective = had
        _require(libc.capset(ctypes.byref(header), data))


def _require(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), "the privileges cannot be changed")
