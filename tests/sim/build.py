"""Compiles the simulated libraries, once for each state of their sources.

Each library consists of the functions that src/ writes out, and of stubs for
all other names that the real one exports.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
_CACHE = HERE.parents[1] / ".venvs"

_FLAGS = ("-O1", "-g0", "-fPIC", "-Wall", f"-I{HERE / 'src'}")
_API = re.compile(r"cu[A-Z]|cuda|__cuda|nvml|cublas|cudnn")
# Only these leave a library: each has its own copy of the scenario's reader,
# and those must not get mixed up.
_EXPORTS = "{ global: cu[A-Z]*; cuda*; __cuda*; nvml*; cublas*; cudnn*; local: *; };\n"


@dataclasses.dataclass(frozen=True)
class Library:
    """A simulated library.

    Attributes:
      names: String. Where to read which names the real one exports: a file in
        symbols/, or the library itself in NVIDIA's wheels.
      sources: Tuple of strings, files in src/.
      error: Int. What stubs return: "not supported" in this library's words.
      succeed: Regular expression of the stubs that return 0 instead, since
        they owe the caller no value.
      create: Regular expression of the stubs that hand out an opaque object.
      links: Tuple of strings, libraries built before that this one loads.
      aliases: Tuple of strings, further names of the file.
    """

    names: str
    sources: tuple[str, ...]
    error: int
    succeed: str = r"(?!)"
    create: str = r"(?!)"
    links: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def soname(self) -> str:
        """The name by which programs load it."""
        return self.aliases[0] if self.aliases else Path(self.names).name

    @property
    def file_name(self) -> str:
        """The name of the file; a driver's libraries carry their version."""
        return Path(self.names).name.removesuffix(".txt")

    def stub(self, name: str) -> str:
        """Returns C for a function of which only the name is known."""
        if re.match(self.create, name):
            return (
                f"int {name}(void **out) {{ *out = calloc(1, 256); "
                f'return (int)k80sim_stub("{name}", 0); }}\n'
            )
        code = 0 if re.match(self.succeed, name) else self.error
        return f'long {name}(void) {{ return k80sim_stub("{name}", {code}); }}\n'


# What a driver installs.
DRIVER = (
    Library(
        "symbols/libcuda.so.470.256.02.txt",
        ("cuda_device.c", "cuda_visible.c", "cuda_work.c", "elementwise.c"),
        error=801,
        succeed=r"cu(Stream(WaitEvent|WaitValue|WriteValue|AttachMem|SetAttr)"
        r"|EventRecord|Launch(?!Coop)|CtxSet|CtxDestroy|FuncSet|MemHost(Reg|Unreg)"
        r"|MemAdvise|MemPrefetch|Profiler|DevicePrimaryCtx(Release|SetFlags|Reset)"
        r"|ThreadExchange)",
        aliases=("libcuda.so.1", "libcuda.so"),
    ),
    Library(
        "symbols/libnvidia-ml.so.470.256.02.txt",
        ("nvml.c", "nvml_health.c"),
        error=3,
        aliases=("libnvidia-ml.so.1", "libnvidia-ml.so"),
    ),
)
# What the wheels bring, except for those that load but never compute here.
TOOLKIT = (
    Library(
        "cuda_runtime/lib/libcudart.so.11.0",
        ("cudart.c", "kernels.c"),
        error=801,
        succeed=r"__cuda|cuda(Stream(Wait|Attach)|Event(Record|Query|Sync)|FuncSet"
        r"|DeviceSet|DeviceReset|DeviceDisablePeer|Host(Reg|Unreg)|Profiler"
        r"|ThreadExchange|SetDeviceFlags|CtxReset)",
        links=("libcuda.so.1",),
    ),
    Library(
        "cublas/lib/libcublas.so.11",
        ("cublas.c",),
        error=15,
        succeed=r"cublas(?!.*Get)",
    ),
    Library(
        "cublas/lib/libcublasLt.so.11",
        ("cublas.c",),
        error=15,
        succeed=r"cublas(?!.*Get)",
    ),
    Library(
        "cudnn/lib/libcudnn.so.8",
        ("cudnn.c",),
        error=9,
        succeed=r"cudnn(?!Get|Find|Create)",
        create=r"cudnnCreate(?!Persistent)",
    ),
)


def why_not_build() -> str | None:
    """Returns what is missing for `build`, else `None`."""
    missing = [tool for tool in ("gcc", "nm") if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)} to compile with" if missing else None


def build(nvidia: Path | None = None) -> Path:
    """Returns the folder that holds the simulated libraries.

    Args:
      nvidia: The `nvidia` folder of the installed CUDA 11 wheels; only their
        lists of names and their headers are read. Without it only what a driver
        installs is built.
    """
    libraries = DRIVER + (TOOLKIT if nvidia else ())
    target = _CACHE / f"sim-{_state(nvidia)}"
    if target.exists():
        return target
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix="sim-") as made:
        out = Path(made, "lib")
        out.mkdir()
        for library in libraries:
            with tempfile.TemporaryDirectory() as work:
                _compile(library, nvidia or HERE, out, Path(work))
        try:
            out.rename(target)
        except OSError:
            # Another test run has just built the same.
            if not target.exists():
                raise
    return target


def _state(nvidia: Path | None) -> str:
    state = hashlib.sha256()
    for path in sorted(HERE.rglob("*")):
        if path.suffix in (".c", ".h", ".txt", ".json") or path == Path(__file__):
            state.update(path.read_bytes())
    if nvidia:
        sizes = [(nvidia / library.names).stat().st_size for library in TOOLKIT]
        state.update(f"{nvidia} {sizes}".encode())
    return state.hexdigest()[:12]


def _compile(library: Library, nvidia: Path, out: Path, work: Path) -> None:
    includes = [
        f"-I{nvidia / name / 'include'}" for name in ("cuda_runtime", "cuda_nvcc")
    ]
    sources = [*library.sources, "scenario.c", "json.c", "stub.c"]
    _run(
        work, "gcc", *_FLAGS, *includes, "-c", *(str(HERE / "src" / s) for s in sources)
    )
    objects = sorted(path.name for path in work.glob("*.o"))
    defined = {
        words[2]
        for line in _run(work, "nm", *objects).splitlines()
        if len(words := line.split()) == 3 and words[1] == "T"
    }
    default = json.dumps(json.dumps(json.loads((HERE / "default.json").read_text())))
    (work / "stubs.c").write_text(
        "#include <stdlib.h>\nextern long k80sim_stub(const char *, long);\n"
        f"const char k80sim_default_json[] = {default};\n"
        + "".join(map(library.stub, sorted(_names(library, nvidia) - defined)))
    )
    (work / "exports").write_text(_EXPORTS)
    _run(
        work,
        *("gcc", *_FLAGS, "-shared", "stubs.c", *objects, "-o", library.file_name),
        *(f"-Wl,-soname,{library.soname}", "-Wl,--version-script,exports"),
        *(f"-L{out}", *(f"-l:{name}" for name in library.links)),
        *("-lpthread", "-ldl", "-lm"),
    )
    shutil.move(str(work / library.file_name), str(out))
    for alias in library.aliases:
        (out / alias).symlink_to(library.file_name)


def _names(library: Library, nvidia: Path) -> set[str]:
    """Returns the functions that the real library exports."""
    if library.names.startswith("symbols/"):
        lines = (HERE / library.names).read_text().splitlines()
        names = {n for line in lines if not line.startswith("#") for n in line.split()}
    else:
        real = str(nvidia / library.names)
        lines = _run(nvidia, "nm", "-D", "--defined-only", real).splitlines()
        found = [words for line in lines if len(words := line.split()) == 3]
        names = {name.split("@")[0] for _, kind, name in found if kind in "TWi"}
    return {name for name in names if _API.match(name)}


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ... failed:\n{done.stderr}")
    return done.stdout
