"""Architectures of device code: in made-up libraries and in the real wheels."""

from __future__ import annotations

import importlib.util
import struct
from importlib import metadata
from pathlib import Path

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.machine.fatbin import architectures

PTX, SASS, OTHER = 1, 2, 16
# What `cuobjdump` of CUDA 11.8 lists for 2.14.1; the other one is read here only.
TENSORFLOW = {
    "2.14.1": (
        ((3, 5), (5, 0), (6, 0), (7, 0), (7, 5), (8, 0)),
        ((8, 0),),
    ),
    "2.21.0": (((6, 0), (7, 0), (8, 0), (8, 9), (9, 0)), ((9, 0),)),
}


def entry(kind: int, architecture: int, payload: bytes = b"\1" * 24) -> bytes:
    head = struct.pack("<HHIQ12xI", kind, 257, 64, len(payload), architecture)
    return head.ljust(64, b"\0") + payload


def container(*entries: bytes, magic: int = 0xBA55ED50) -> bytes:
    payload = b"".join(entries)
    return struct.pack("<IHHQ", magic, 1, 16, len(payload)) + payload


def library(code: bytes, section: str = ".nv_fatbin", size: int | None = None) -> bytes:
    """Returns a 64-bit ELF file with one section besides that of the names."""
    names = f"\0.shstrtab\0{section}\0".encode()
    table = 64 + len(names) + len(code)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 1
    )
    rows = [
        (0, 0, 0, 0, 0, 0),
        (1, 3, 0, 0, 64, len(names)),
        (11, 1, 2, 0, 64 + len(names), len(code) if size is None else size),
    ]
    sections = b"".join(struct.pack("<IIQQQQ", *row).ljust(64, b"\0") for row in rows)
    return header + names + code + sections


CODE = container(entry(SASS, 50), entry(SASS, 35), entry(PTX, 80)) + container(
    entry(SASS, 35), entry(OTHER, 61), entry(SASS, 120)
)


def read(path: Path, data: bytes) -> object:
    path.write_bytes(data)
    return architectures(path)


def test_every_entry_counts_once_in_order(tmp_path: Path) -> None:
    found = read(tmp_path / "lib.so", library(CODE))
    assert found == (((3, 5), (5, 0), (12, 0)), ((8, 0),))


def test_path_may_be_a_string(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(library(container(entry(PTX, 37))))
    assert architectures(str(tmp_path / "lib.so")) == ((), ((3, 7),))


def test_containers_are_aligned(tmp_path: Path) -> None:
    odd = container(entry(SASS, 35, b"\1" * 21))
    code = odd.ljust(len(odd) + 3, b"\0") + container(entry(SASS, 37))
    assert read(tmp_path / "lib.so", library(code)) == (((3, 5), (3, 7)), ())


def test_libraries_without_device_code(tmp_path: Path) -> None:
    for data in (library(CODE, "__nv_relfatbin"), library(b""), library(CODE, ".text")):
        assert read(tmp_path / "lib.so", data) == ((), ())


def test_payloads_are_not_read(tmp_path: Path) -> None:
    # 64 GiB that take no space on the disk, and no time to skip.
    size = 2**36
    path = tmp_path / "lib.so"
    head = struct.pack("<HHIQ12xI", SASS, 257, 64, size - 64, 35).ljust(64, b"\0")
    code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, size) + head
    data = library(code, size=16 + size)
    path.write_bytes(data)
    try:
        with open(path, "r+b") as file:
            file.truncate(2**37)
    except OSError as error:
        pytest.skip(f"no large files here: {error}")
    assert architectures(path) == (((3, 5),), ())


@pytest.mark.parametrize(
    "data, complaint",
    [
        (b"", "no header of a 64-bit library"),
        (b"#!/bin/sh\n" * 10, "no header of a 64-bit library"),
        (b"\x7fELF\x01\x01".ljust(64, b"\0"), "no header of a 64-bit library"),
        (library(CODE)[:-100], "beyond its end"),
        (library(CODE, size=2**40), "is cut off"),
        (library(container(entry(SASS, 35), magic=1)), "no container"),
        (library(CODE + b"rubbish" * 8), "no container"),
        (library(CODE[:-8]), "longer than its section"),
        (library(container(entry(SASS, 35) + b"\0" * 64)), "no entry"),
        (library(container(entry(SASS, 35)[:-8])), "no entry"),
    ],
)
def test_malformed_files_say_where(tmp_path: Path, data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidArgumentError, match=complaint) as caught:
        read(tmp_path / "lib.so", data)
    assert str(tmp_path / "lib.so") in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        architectures(tmp_path / "absent.so")
    with pytest.raises(IsADirectoryError):
        architectures(tmp_path)


def test_rubbish_ends_in_an_answer_or_one_error(tmp_path: Path) -> None:
    hypothesis = pytest.importorskip("hypothesis")
    from hypothesis import strategies

    path = tmp_path / "lib.so"
    good = library(CODE)
    places = strategies.integers(0, len(good) - 1)
    edits = strategies.lists(
        strategies.tuples(places, strategies.binary(min_size=1, max_size=8)), max_size=5
    )

    @hypothesis.given(edits, strategies.integers(0, len(good)))
    @hypothesis.settings(
        max_examples=300, deadline=None, derandomize=True, database=None
    )
    def check(edits: list[tuple[int, bytes]], length: int) -> None:
        data = bytearray(good)
        for place, new in edits:
            data[place : place + len(new)] = new
        try:
            sass, ptx = architectures_of(bytes(data[:length]))
        except InvalidArgumentError:
            return
        assert list(sass) == sorted(set(sass)) and list(ptx) == sorted(set(ptx))

    def architectures_of(data: bytes) -> object:
        path.write_bytes(data)
        return architectures(path)

    check()


def test_installed_tensorflow() -> None:
    version = metadata.version("tensorflow")
    if version not in TENSORFLOW:
        pytest.skip(f"nobody listed the code in TensorFlow {version}")
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None and spec.origin is not None
    library_path = Path(spec.origin).with_name("libtensorflow_cc.so.2")
    assert architectures(library_path) == TENSORFLOW[version]


def test_installed_cudnn() -> None:
    try:
        package = metadata.distribution("nvidia-cudnn-cu11")
    except metadata.PackageNotFoundError:
        pytest.skip("no cuDNN from a wheel: lane k80-sim")
    if package.version != "8.7.0.84":
        pytest.skip(f"nobody listed the code in cuDNN {package.version}")
    path = package.locate_file("nvidia/cudnn/lib/libcudnn_cnn_infer.so.8")
    sass = (3, 5), (5, 0), (6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)
    assert architectures(str(path)) == (sass, ((9, 0),))
