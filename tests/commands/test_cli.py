"""The command `k80keras`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import k80keras
from k80keras.errors import InvalidArgumentError


def run(*words: str, module: bool = True, **environ: str):
    """Returns what a finished `k80keras ...` left."""
    script = os.path.join(os.path.dirname(sys.executable), "k80keras")
    command = [sys.executable, "-m", "k80keras"] if module else [script]
    return subprocess.run(
        [*command, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_the_commands(words):
    done = run(*words)

    assert done.returncode == 0 and done.stderr == ""
    rows = [line.split()[0] for line in done.stdout.splitlines() if line[:2] == "  "]
    assert rows == ["doctor", "env", "probe"]


def test_console_script_and_version():
    assert run("--version", module=False).stdout == f"k80keras {k80keras.__version__}\n"


@pytest.mark.parametrize("command", ["doctor", "env", "probe"])
def test_help_of_a_command(command):
    done = run(command, "--help")

    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: k80keras {command} [--option ...]\n")
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "words, complaint",
    [
        (("doctr",), "no command is called doctr. Did you mean doctor?"),
        (("xyz",), "no command is called xyz. There are: doctor, env, probe."),
        (("doctor", "--jsn"), "no option is called --jsn. Did you mean --json?"),
        (("doctor", "now"), "every option is --name or --name=value, not 'now'"),
        (("doctor", "--json=maybe"), "flag --json=maybe"),
        (("doctor", "--fix_script=/no/such/folder/x"), "folder that exists"),
        (("doctor", "--fix_script=/dev/null"), "must be a file"),
        (("doctor", "--fix_script=/tmp"), "must be a file"),
    ],
)
def test_wrong_command_lines(words, complaint):
    done = run(*words)

    assert done.returncode == 64 and done.stdout == ""
    assert done.stderr.startswith("k80keras: ") and complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_doctor_answers_on_this_machine(tmp_path):
    done = run("doctor", "--json", f"--fix_script={tmp_path / 'fix.sh'}")

    value = json.loads(done.stdout)
    assert done.returncode == value["exit_code"]
    assert value["system"]["failures"] == {}
    assert os.access(tmp_path / "fix.sh", os.X_OK)
    if not os.path.exists("/proc/driver/nvidia/version"):
        text = run("doctor").stdout
        assert text.startswith("No NVIDIA GPU: training runs on the CPU; TensorFlow")


@pytest.mark.slow
def test_smoke_test_passes_on_the_cpu():
    done = run("doctor", "--smoke", "--json", CUDA_VISIBLE_DEVICES="")

    value = json.loads(done.stdout)
    assert {r["state"] for r in value["smoke"]["results"]} == {"ok"}, done.stdout
    smoke = [f for f in value["findings"] if f["check"].startswith("smoke_")]
    assert len(smoke) == len(value["smoke"]["results"]) and done.returncode == 0


def test_probe_never_loads_tensorflow_here():
    code = """if True:
        import sys
        import k80keras
        system = k80keras.probe()
        assert not {"tensorflow", "keras", "pynvml"} & set(sys.modules)
        print(system.tensorflow.version, system.tensorflow_run.error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    version, error = done.stdout.split()
    assert version.startswith("2.") and error == "None", done.stderr
    value = json.loads(run("probe").stdout)
    assert value["tensorflow"]["version"] == version


def test_probe_names_its_sources():
    with pytest.raises(InvalidArgumentError, match="Received: gpu"):
        k80keras.probe(["gpu"])


def test_reader_that_stops_early_is_no_error():
    script = f"{sys.executable} -m k80keras probe | head -1"
    done = subprocess.run(script, shell=True, capture_output=True, text=True)

    assert done.stdout == "{\n" and done.stderr == ""


def test_full_disk_is_one_line():
    script = f"{sys.executable} -m k80keras --help >/dev/full"
    done = subprocess.run(script, shell=True, capture_output=True, text=True)

    assert done.returncode == 74 and done.stderr.count("\n") == 1


def test_link_to_a_script_stays_one(tmp_path):
    (tmp_path / "link").symlink_to("script")
    run("doctor", f"--fix_script={tmp_path / 'link'}", CUDA_VISIBLE_DEVICES="")

    assert (tmp_path / "link").is_symlink() and (tmp_path / "script").is_file()


def test_tokens_of_other_programs_are_not_told():
    shown = {"TF_GPU_THREAD_MODE": "gpu_private", "CUDA_VISIBLE_DEVICES": "0"}
    secrets = {
        "TF_TOKEN_app_terraform_io": "secret-1",
        "TF_VAR_db_password": "secret-2",
        "NVIDIA_API_KEY": "secret-3",
    }
    assert k80keras.probe(["host"], environ={**shown, **secrets}).environ == shown


def test_odd_encodings_are_printed_all_the_same():
    done = run("doctor", "--fix_script=/é/x", PYTHONIOENCODING="ascii")

    assert done.returncode == 64 and r"Received: /\xe9/x" in done.stderr
