"""Runs programs inside the simulated box."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any, Iterator, Mapping

from tests.sim import scenario as scenarios
from tests.sim.build import build

# Wheels whose libraries TensorFlow loads as they are.
_REAL = ("cufft", "cusolver", "cusparse", "curand", "cuda_cupti")
# Whoever runs the tests may have set these for other programs.
_FOREIGN = ("CUDA_", "K80SIM_", "LD_PRELOAD", "NCCL_", "TF_", "XLA_")


def find_wheels() -> Path | None:
    """Returns the `nvidia` folder of the wheels that TensorFlow 2.14 loads."""
    names = [
        f"nvidia-{name}-cu11"
        for name in ("cuda-runtime", "cuda-nvcc", "cublas", "cudnn")
        + tuple(name.replace("_", "-") for name in _REAL)
    ]
    try:
        if not metadata.version("tensorflow").startswith("2.14."):
            return None
        folders = [metadata.distribution(n).locate_file("nvidia") for n in names]
    except metadata.PackageNotFoundError:
        return None
    return Path(str(folders[0]))


class Box:
    """A simulated box with two K80s, unless a scenario says otherwise.

    Args:
      folder: Where to put scenarios.
      nvidia: What `find_wheels` returns, for TensorFlow to see the dies, too;
        without it there is what a driver installs: NVML and libcuda.
    """

    def __init__(self, folder: Path, nvidia: Path | None = None) -> None:
        self.libraries = build(nvidia)
        self._folder = folder
        self.nvidia = nvidia
        self._numbers = itertools.count()

    def scenario(self, **changes: Any) -> Path:
        """Returns a new scenario file.

        Args:
          **changes: By dotted key, for example those of a row of `SCENARIOS`.
        """
        path = self._folder / f"scenario-{next(self._numbers)}.json"
        _save(path, scenarios.load(), changes)
        return path

    def change(self, path: Path, **changes: Any) -> None:
        """Changes a scenario; programs that are running will see it."""
        _save(path, scenarios.load(path), changes)

    def environ(self, scenario: Path | None = None) -> dict[str, str]:
        """Returns the whole environment of a child process inside the box."""
        scenario = scenario or self.scenario()
        variables = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        libraries = [self.libraries]
        variables["K80SIM_SCENARIO"] = str(scenario)
        if self.nvidia:
            libraries += [self.nvidia / name / "lib" for name in _REAL]
            tools = self.nvidia / "cuda_nvcc"
            variables["PATH"] = f"{tools / 'bin'}:{os.environ.get('PATH', os.defpath)}"
            variables["XLA_FLAGS"] = f"--xla_gpu_cuda_data_dir={tools}"
            variables["NCCL_TOPO_FILE"] = str(_topology_of(scenario))
        inherited = os.environ.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = ":".join(
            [*map(str, libraries), *([inherited] if inherited else [])]
        )
        return variables

    @contextlib.contextmanager
    def start(
        self, code: str, scenario: Path | None = None, **environ: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Starts a Python program with its streams as pipes; kills it at the end."""
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**self.environ(scenario), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            try:
                yield child
            finally:
                child.kill()

    def run(
        self, code: str, scenario: Path | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a Python program to its end."""
        with self.start(code, scenario, **environ) as child:
            out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def ask(self, code: str, scenario: Path | None = None, **environ: str) -> Any:
        """Returns the value that a Python program prints, as JSON, at its end."""
        done = self.run(code, scenario, **environ)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])


def _save(path: Path, box: dict[str, Any], changes: Mapping[str, Any]) -> None:
    scenarios.change(box, changes)
    scenarios.write(path, json.dumps(box, indent=1))
    scenarios.write(_topology_of(path), scenarios.nccl_topology(box))


def _topology_of(scenario: Path) -> Path:
    return scenario.with_suffix(".nccl.xml")
