"""Python, TensorFlow and CUDA's libraries: do they hold code for this card?"""

from __future__ import annotations

from k80keras.machine import support
from k80keras.machine.configure import preload
from k80keras.machine.configure.visible import named_dies
from k80keras.machine.doctor import remedies
from k80keras.machine.doctor.findings import Finding, error, ok, skipped, warning
from k80keras.machine.hardware import GK210
from k80keras.machine.system import System

_CAPABILITY = GK210.compute_capability
# TensorFlow 2.20 and later begin here; 2.14 has code from 3.5 on.
_FIRST_IN_NEWEST = (6, 0)


def python(system: System) -> Finding:
    """Is there a TensorFlow for this Python that knows the card?"""
    version = system.host.python
    if not system.has_k80 or version is None:
        return skipped("no Tesla K80")
    first, last = support.TENSORFLOW_PYTHON
    told = ".".join(map(str, version))
    if first <= version[:2] <= last:
        return ok(f"Python {told}")
    return error(
        f"Python {told} has no TensorFlow for the K80",
        f"TensorFlow {support.LAST_TENSORFLOW}, the last with code for the card, has "
        f"wheels for Python {first[0]}.{first[1]} to {last[0]}.{last[1]}.",
        remedies.new_environment(),
    )


def tensorflow(system: System) -> Finding:
    """Is TensorFlow installed, once, and does it load?"""
    build, run, host = system.tensorflow, system.tensorflow_run, system.host
    extra = "k80" if system.has_k80 else "tensorflow"
    if build.version is None:
        say = error if system.has_k80 else warning
        return say(
            "TensorFlow is not installed",
            "k80keras trains with it, and leaves the choice to you.",
            remedies.install_extra(host, extra),
        )
    if run is not None and run.error is not None:
        return error(
            f"TensorFlow {build.version} does not start",
            run.error,
            f"{host.pip} install --force-reinstall {_requirement(system)}",
        )
    if len(build.packages) > 1:
        return warning(
            f"several packages bring TensorFlow: {', '.join(build.packages)}",
            "They write the same files; which one is there depends on the order of "
            "installation.",
            f"{host.pip} uninstall --yes {' '.join(build.packages)} && "
            f"{host.pip} install {_requirement(system)}",
        )
    return ok(f"TensorFlow {build.version}")


def _requirement(system: System) -> str:
    build = system.tensorflow
    if system.has_k80:
        return '"k80keras[k80]"'
    package = build.packages[0] if build.packages else "tensorflow"
    # Nightly builds are gone after a while.
    exact = build.version != "unknown" and "nightly" not in package
    return f"{package}=={build.version}" if exact else package


def _install_for_gpu(system: System) -> str:
    known = [die.compute_capability for die in system.dies]
    old = any(c is not None and c < _FIRST_IN_NEWEST for c in known)
    if system.has_k80 or old:
        return remedies.install_extra(system.host, "k80")
    return f'{system.host.pip} install --upgrade "tensorflow[and-cuda]"'


def tensorflow_code(system: System) -> Finding:
    """Does TensorFlow hold machine code for each GPU?"""
    build = system.tensorflow
    if not system.has_gpu or build.version is None:
        return skipped("no NVIDIA GPU, or no TensorFlow")
    install = _install_for_gpu(system)
    if build.cuda_build is False:
        return error(
            f"TensorFlow {build.version} was built for the CPU only",
            "It holds no code for any GPU.",
            install,
        )
    if build.sass is None or build.ptx is None:
        return skipped(f"TensorFlow {build.version}: its library cannot be read")
    held = ", ".join(f"{major}.{minor}" for major, minor in build.sass)
    if system.has_k80 and not support.runs_on(_CAPABILITY, build.sass, build.ptx):
        return error(
            f"TensorFlow {build.version} holds no code for a K80",
            f"Its library holds machine code for compute capability {held}; a K80 has "
            "3.7. TensorFlow accepts the card all the same and fails at the first "
            f"operation. {support.LAST_TENSORFLOW} is the last one with code for it.",
            install,
        )
    for die in system.dies:
        target = die.compute_capability
        if target is None or support.runs_on(target, build.sass, ()):
            continue
        has = f"{die.name} has {target[0]}.{target[1]}, and the library {held}"
        if support.runs_on(target, (), build.ptx):
            return warning(
                f"TensorFlow {build.version} has to be compiled for {die.name}",
                f"{has}. The driver translates its intermediate code at the first "
                "start, which takes minutes (tensorflow#5048), and again when its "
                "cache is too small.",
                "export CUDA_CACHE_MAXSIZE=4294967296",
            )
        return error(
            f"TensorFlow {build.version} holds no code for {die.name}", has, install
        )
    return ok(f"TensorFlow {build.version} holds code for every GPU")


def _pins() -> str:
    names = (name for name in support.PINS if name.startswith("nvidia-"))
    return " ".join(f"{name}=={support.PINS[name]}" for name in names)


def cuda_libraries(system: System) -> Finding:
    """Do the wheels of CUDA fit TensorFlow and the card?"""
    tools, host = system.cuda_tools, system.host
    if not system.has_k80:
        return skipped("no Tesla K80")
    newer = [p.name for p in tools.packages if (p.cuda_major or 0) > 11]
    if newer:
        return error(
            f"{len(newer)} packages of CUDA 12 or later are installed",
            "They lie in the same folders as those of CUDA 11 (cuDNN overwrites them "
            "under the same names) and hold no code for a K80: " + ", ".join(newer),
            # Uninstalling removes files that both had.
            f"{host.pip} uninstall --yes {' '.join(newer)} && "
            f"{host.pip} install --force-reinstall --no-deps {_pins()}",
        )
    cudnn = tools.version_of("nvidia-cudnn-cu11")
    if cudnn is None:
        return ok("no cuDNN from a wheel")
    pinned = f'"nvidia-cudnn-cu11=={support.PINS["nvidia-cudnn-cu11"]}"'
    if not support.cudnn_supports(cudnn, _CAPABILITY):
        return error(
            f"cuDNN {cudnn} holds no code for a K80",
            "8.7 is the last one with Kepler; later ones begin at compute capability "
            "5.0.",
            f"{host.pip} install {pinned}",
        )
    if tuple(map(int, cudnn.split(".")[:2])) < support.OLDEST_CUDNN:
        return error(
            f"cuDNN {cudnn} is older than TensorFlow was built with",
            f"TensorFlow {support.LAST_TENSORFLOW} was compiled with cuDNN 8.6 and "
            "refuses an older one.",
            f"{host.pip} install {pinned}",
        )
    return ok(f"cuDNN {cudnn}")


def nvrtc(system: System) -> Finding:
    """Will cuDNN find the compiler that it loads by an unversioned name?"""
    tools = system.cuda_tools
    if not system.has_gpu or tools.nvrtc_link is None:
        return skipped("no GPU, or no cuDNN 8 from a wheel")
    if not preload.is_needed(tools):
        return ok("cuDNN finds what it needs")
    return warning(
        "cuDNN does not find libnvrtc.so",
        "The wheels bring it as libnvrtc.so.11.2 only, and cuDNN ends the process at "
        "the first convolution (tensorflow#62194). A program that calls "
        "k80keras.configure() first is safe; the link makes all of them so.",
        preload.command(tools, system.host.pip),
    )


def xla_tools(system: System) -> Finding:
    """Can XLA assemble for the card?"""
    tools, host = system.cuda_tools, system.host
    if not system.has_k80 or system.tensorflow.version is None:
        return skipped("no Tesla K80, or no TensorFlow")
    name = "nvidia-cuda-nvcc-cu11"
    # It may be listed while another wheel's removal took its files.
    wheel = f"--force-reinstall --no-deps {name}=={support.PINS[name]}"
    if not tools.ptxas or not tools.libdevice:
        missing = "ptxas" if not tools.ptxas else "libdevice"
        return warning(
            f"XLA does not find {missing}",
            "Keras 2 compiles its optimizers with XLA by default, and K80Tuner must "
            "switch that off without these tools.",
            f"{host.pip} install {wheel}",
        )
    version = tools.ptxas_version or (0, 0)
    if version >= support.FIRST_CUDA_WITHOUT_KEPLER:
        return warning(
            f"XLA would run the ptxas of CUDA {version[0]}",
            f"{tools.ptxas} cannot assemble for compute capability 3.7; the driver "
            "then does it, slowly, at each start.",
            (
                'eval "$(k80keras env)"'
                if tools.version_of("nvidia-cuda-nvcc-cu11")
                else f'{host.pip} install {wheel} && eval "$(k80keras env)"'
            ),
        )
    return ok(f"ptxas at {tools.ptxas}")


def tensorflow_devices(system: System) -> Finding:
    """Does TensorFlow list every die?"""
    run, host = system.tensorflow_run, system.host
    if not system.dies or run is None or run.error is not None:
        return skipped("no die answers, or no TensorFlow")
    told = system.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(system.dies if told is None else named_dies(told, system))
    if len(run.gpus) >= count:
        return ok(f"TensorFlow lists {len(run.gpus)} GPUs")
    if run.gpus:
        return error(
            f"TensorFlow lists {len(run.gpus)} of {count} GPUs",
            "CUDA could not start on the others; the kernel's log says why.",
            remedies.on_host(host, "sudo dmesg | grep -iE 'nvrm|xid'"),
        )
    return error(
        f"TensorFlow lists none of {count} GPUs",
        "It skips all of them if one of CUDA's libraries is missing.",
        _install_for_gpu(system),
    )
