"""For which GPUs a shared library holds code, read from its file.

`nvcc` puts device code into the section `.nv_fatbin`: containers one after the
other, each with one entry for every architecture and form. Only the headers are
read here, so that a library of a gigabyte takes milliseconds. The forms are not
documented; they were found in NVIDIA's and TensorFlow's wheels and agree with
what `cuobjdump` of CUDA 11.8 lists.

`__nv_relfatbin` is left out: it holds what went into the device linker, whose
result is in `.nv_fatbin`. In TensorFlow 2.12 to 2.14 it would add nothing but
left-over intermediate code of NCCL.
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO, Iterator

from k80keras.errors import InvalidArgumentError

_SECTION = b".nv_fatbin\0"
_MAGIC = 0xBA55ED50
_PTX, _SASS = 1, 2
# A container's length is a multiple of it in every file seen.
_ALIGNMENT = 8


def architectures(
    path: str | os.PathLike[str],
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Returns the compute capabilities for which a library holds code.

    Args:
      path: Path of a shared library for 64-bit Linux.

    Returns:
      Two sorted tuples of pairs of ints: those with machine code (SASS), and
      those with intermediate code (PTX). Both are empty for a library without
      device code.

    Raises:
      InvalidArgumentError: If the file is no such library, or is cut off.
      OSError: If it cannot be read.
    """
    found: dict[int, set[tuple[int, int]]] = {_PTX: set(), _SASS: set()}
    with open(path, "rb", buffering=0) as file:
        try:
            for kind, architecture in _entries(_File(file)):
                if kind in found:
                    found[kind].add(divmod(architecture, 10))
        except _Malformed as error:
            raise InvalidArgumentError(
                "Device code is read from shared libraries for 64-bit Linux. "
                f"Received: path={os.fspath(path)!r}, in which {error}. Install the "
                "package that the file belongs to again."
            ) from None
    return tuple(sorted(found[_SASS])), tuple(sorted(found[_PTX]))


class _Malformed(Exception):
    """The file's bytes are not what they should be; the message says where."""


class _File:
    """Reads numbers at places in a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, offset: int, count: int) -> bytes:
        if offset + count > self.size:
            raise _Malformed(f"byte {offset + count} lies beyond its end")
        self._file.seek(offset)
        data = self._file.read(count)
        if len(data) < count:
            raise _Malformed(f"byte {offset + count} cannot be read")
        return data

    def numbers(self, format: str, offset: int) -> tuple[Any, ...]:
        return struct.unpack(format, self.read(offset, struct.calcsize(format)))


def _entries(file: _File) -> Iterator[tuple[int, int]]:
    """Yields the kind and the architecture (35 for 3.5) of each entry."""
    start, size = _section(file)
    at, end = start, start + size
    if end > file.size:
        raise _Malformed("the section of device code is cut off")
    while at < end:
        magic, _, header, payload = file.numbers("<IHHQ", at)
        if magic != _MAGIC or header < 16:
            raise _Malformed(f"no container of device code begins at byte {at}")
        entry, at = at + header, at + header + payload
        if at > end:
            raise _Malformed(
                f"the container before byte {at} is longer than its section"
            )
        while entry < at:
            kind, _, header, payload, _, architecture = file.numbers("<HHIQ12sI", entry)
            if header < 32 or entry + header + payload > at:
                raise _Malformed(f"no entry of device code begins at byte {entry}")
            yield kind, architecture
            entry += header + payload
        at += (start - at) % _ALIGNMENT


def _section(file: _File) -> tuple[int, int]:
    """Returns where `.nv_fatbin` lies and its size, (0, 0) if there is none."""
    if file.size < 64 or file.read(0, 6) != b"\x7fELF\x02\x01":
        raise _Malformed("there is no header of a 64-bit library (ELF)")
    (table,) = file.numbers("<Q", 40)
    header, count, names = file.numbers("<HHH", 58)
    if count and (header < 64 or names >= count):
        raise _Malformed("the table of sections makes no sense")
    if not count:
        return 0, 0
    (names_at,) = file.numbers("<Q", table + header * names + 24)
    for i in range(count):
        name, _, _, _, at, size = file.numbers("<IIQQQQ", table + header * i)
        start = names_at + name
        if file.read(start, min(len(_SECTION), max(0, file.size - start))) == _SECTION:
            return at, size
    return 0, 0
