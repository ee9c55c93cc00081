"""Finding ptxas and libdevice in made-up installations."""

from __future__ import annotations

import os

from k80keras.machine.cuda_tools import cuda_roots, find_libdevice, find_ptxas


def make(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas([str(tmp_path)]) is None
    assert find_libdevice([str(tmp_path)]) is None


def test_first_root_wins_and_path_wins_over_all(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    roots = [str(tmp_path / "a"), str(tmp_path / "b")]
    second = make(tmp_path / "b", "bin/ptxas")
    assert find_ptxas(roots) == second
    first = make(tmp_path / "a", "bin/ptxas")
    assert find_ptxas(roots) == first
    on_path = make(tmp_path, "bin/ptxas")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_ptxas(roots) == on_path
    libdevice = make(tmp_path / "b", "nvvm/libdevice/libdevice.10.bc")
    assert find_libdevice(roots) == libdevice


def test_order_of_roots(tmp_path):
    flag, home = tmp_path / "flag", tmp_path / "home"
    for folder in (flag, home):
        os.makedirs(folder)
    environ = {
        "XLA_FLAGS": f"--xla_x=1 --xla_gpu_cuda_data_dir={flag}",
        "CUDA_HOME": str(home),
        "CUDA_DIR": str(tmp_path / "not there"),
    }
    assert cuda_roots(environ)[:2] == [str(flag), str(home)]
