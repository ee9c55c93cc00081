"""Every source made to raise, hang, talk rubbish or be unreadable.

The doctor runs in a process of its own, on real files, libraries and programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from k80keras.machine.probe import SOURCES
from tests.machine import made_up
from tests.sim.build import why_not_build

pytestmark = pytest.mark.skipif(why_not_build() is not None, reason="needs gcc")

_EXAMINE = """
import json, sys
from k80keras.machine.doctor.examine import doctor
found = doctor(root=sys.argv[1])
print(json.dumps(dict(
    exit_code=found.exit_code,
    problems={f.check: [f.state, f.title, f.remedy] for f in found.problems},
    failures=dict(found.system.failures),
)))
"""
_FILES = {
    "host": "proc/self/cgroup",
    "pci": "sys/bus/pci/devices/0000:05:00.0/vendor",
    "driver": "proc/driver/nvidia/version",
    "tensorflow": "tensorflow/python/platform/build_info.py",
    "self_test": "home/.cache/k80keras/self_test.json",
}


class Machine:
    """A machine whose sources can each be broken."""

    def __init__(self, folder: Path) -> None:
        self.root = made_up.healthy_box(folder / "root")
        self.bin, self.lib, self.site = (folder / n for n in ("bin", "lib", "site"))
        for place in (self.bin, self.lib):
            place.mkdir()
        made_up.write(
            self.site,
            {
                "tensorflow/__init__.py": "",
                _FILES["tensorflow"]: "build_info = dict({'is_cuda_build': False})",
                "tensorflow-2.14.1.dist-info/METADATA": (
                    "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.14.1\n"
                ),
            },
        )

    def file_of(self, source: str) -> Path:
        """Returns the file that a source reads; it is gone then."""
        base = self.site if source == "tensorflow" else self.root
        path = base / _FILES[source]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    def program(self, source: str, python: str, shell: str, c: str) -> None:
        """Lets what a source runs do something."""
        if source == "tensorflow_run":
            (self.site / "tensorflow/__init__.py").write_text(python)
        elif source == "cuda_tools":
            (self.bin / "ptxas").write_text(f"#!/bin/sh\n{shell}\n")
            (self.bin / "ptxas").chmod(0o755)
        else:
            name = {"libcuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}[source]
            code = f"#include <stdlib.h>\n#include <unistd.h>\n{c}\n"
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.lib / name],
                input=code.encode(),
                check=True,
            )

    def examine(self):
        """Returns what the doctor says."""
        path = [str(self.site), *(p for p in sys.path if p)]
        done = subprocess.run(
            [sys.executable, "-c", _EXAMINE, str(self.root)],
            env={
                **os.environ,
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(self.lib),
                "PYTHONPATH": os.pathsep.join(path),
                "XDG_CACHE_HOME": str(self.root / "home/.cache"),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def constructor(body: str) -> str:
    """Returns C that runs when the library is loaded."""
    return f"__attribute__((constructor)) static void start(void) {{ {body} }}"


def hang(machine: Machine, source: str) -> None:
    if source in _FILES:
        os.mkfifo(machine.file_of(source))  # opening it waits for a writer
    else:
        code = "import time; time.sleep(5)"
        machine.program(source, code, "sleep 3600", constructor("sleep(3600);"))


def fail(machine: Machine, source: str) -> None:
    if source in _FILES:
        machine.file_of(source).mkdir()
    else:
        code = "raise RuntimeError('no')"
        machine.program(source, code, "exit 3", constructor("exit(3);"))


def crash(machine: Machine, source: str) -> None:
    if source in _FILES:
        # Also what a file does that nobody may read, root included.
        path = machine.file_of(source)
        path.symlink_to(path.name)
    else:
        code = "import os; os.abort()"
        machine.program(source, code, "kill -ABRT $$", constructor("abort();"))


def talk_rubbish(machine: Machine, source: str) -> None:
    if source in _FILES:
        machine.file_of(source).write_bytes(b"\xff\x00'rubbish(\n")
    else:
        code = "print('rubbish'); raise SystemExit"
        rubbish = constructor('puts("rubbish"); exit(0);')
        machine.program(
            source, code, "echo rubbish", f"int puts(const char *);{rubbish}"
        )


FAULTS = {"hang": hang, "fail": fail, "crash": crash, "rubbish": talk_rubbish}


@pytest.mark.parametrize("fault", FAULTS)
def test_all_sources_at_once(tmp_path, fault):
    machine = Machine(tmp_path)
    for source in SOURCES:
        FAULTS[fault](machine, source)

    found = machine.examine()

    # What TensorFlow says of itself is an answer, if a sad one; it is judged
    # only where its files could be read. On a driver that hangs it is not run.
    answers = {"tensorflow_run"} if fault != "hang" else set()
    assert set(found["failures"]) == set(SOURCES) - answers
    for source in found["failures"]:
        state, title, remedy = found["problems"][source]
        assert state == "warning" and source in title and remedy
    assert set(found["problems"]) == set(found["failures"])
    assert found["exit_code"] == 1


@pytest.mark.parametrize("fault", ["fail", "crash", "rubbish"])
@pytest.mark.parametrize("source", SOURCES)
def test_one_source(tmp_path, source, fault):
    machine = Machine(tmp_path)
    before = machine.examine()
    FAULTS[fault](machine, source)

    found = machine.examine()

    if source == "tensorflow_run":
        assert "does not start" in found["problems"]["tensorflow"][1]
    else:
        assert set(found["failures"]) - set(before["failures"]) == {source}
        state, title, remedy = found["problems"][source]
        assert source in title and remedy
        # A driver that breaks its own library serves nobody.
        assert state == ("error" if source == "nvml" else "warning")
    states = [state for state, _, _ in found["problems"].values()]
    assert found["exit_code"] == (2 if "error" in states else 1)
