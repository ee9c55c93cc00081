"""What a person reads, the script with the remedies, and what JSON keeps quiet."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import socket
import subprocess

from k80keras.machine.doctor.examine import doctor
from k80keras.machine.doctor.text import as_script, as_text
from k80keras.machine.privacy import anonymous
from tests.machine import boxes


def broken():
    """Returns a box with an error that needs a restart, and two warnings."""
    system = boxes.with_dies(
        ecc_uncorrected_volatile=2, retired_pages_pending=True, persistence_mode=False
    )
    return dataclasses.replace(system, environ={"CUDA_VISIBLE_DEVICES": "-1"})


def test_silent_about_what_is_fine():
    diagnosis = doctor(boxes.healthy())
    text = str(diagnosis)

    assert text.splitlines() == [
        "4 x Tesla K80 on 2 boards; driver 470.256.02; TensorFlow 2.14.1; "
        "Python 3.11.7.",
        "",
        "Nothing to mend.",
    ]
    assert "persistence mode is on" in as_text(
        diagnosis.system, diagnosis.findings, verbose=True
    )


def test_each_problem_ends_in_its_command():
    text = str(doctor(broken()))

    blocks = text.split("\n\n")[1:-1]
    assert [block.split()[0] for block in blocks] == ["warning", "error", "warning"]
    assert [block.splitlines()[-1].strip() for block in blocks] == [
        "$ unset CUDA_VISIBLE_DEVICES",
        "$ sudo systemctl reboot",
        "$ sudo nvidia-smi -pm 1",
    ]
    assert text.endswith("1 error and 2 warnings.")
    assert all(len(line) <= 88 for line in text.splitlines())


def test_script_runs_commands_and_restarts_last(tmp_path):
    script = tmp_path / "fix.sh"
    script.write_text(as_script(doctor(broken()).problems))
    for name in ("sudo",):
        (tmp_path / name).write_text('#!/bin/sh\necho "did: $@"\nexit 1\n')
        (tmp_path / name).chmod(0o755)

    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )

    # A remedy that fails does not keep the next from being tried.
    did = [line for line in done.stdout.splitlines() if line.startswith("did:")]
    assert did == ["did: nvidia-smi -pm 1", "did: systemctl reboot"]
    # Only the user's own shell can do this.
    assert "#   unset CUDA_VISIBLE_DEVICES" in script.read_text()


def test_scripts_of_every_fault_are_shell(tmp_path):
    from tests.machine.doctor.test_checks import TABLE

    for fault, (system, _, command) in TABLE.items():
        text = as_script(doctor(system).problems)
        done = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, (fault, done.stderr)
        assert command.split("'")[0] in text


def test_line_break_in_a_variable_begins_no_command(tmp_path):
    mark = tmp_path / "mark"
    for name in ("CUDA_VISIBLE_DEVICES", "TF_XLA_FLAGS", "XLA_FLAGS"):
        value = f"0,x --tf_xla_auto_jit=2 --xla_gpu_cuda_data_dir=/n\ntouch {mark}\n#"
        system = boxes.healthy(environ={name: value})
        text = as_script(doctor(system).problems)
        subprocess.run(["bash"], input=text, text=True, capture_output=True)
    assert not mark.exists()


def test_json_tells_nothing_about_the_owner():
    home, homes = os.path.expanduser("~"), "/home"
    host = socket.gethostname()
    value = {
        "uuid": "GPU-1b6b53f4-7a0c-4f0e-9c55-0c3d5e8a1101",
        "serial": "0320615095340",
        "upper": "GPU-1B6B53F4-7A0C",
        "nothing": {"uuid": None},
        "path": f"{home}/venv/bin:{homes}/alice/lib:/Users/bob",
        "words": [f"on {host}, with GPU-9e27c1d8", f"not-{host}x"],
        "numbers": (1, 2.5, None, True),
        "environ": {"TF_CONFIG": '{"cluster": {"worker": ["node1:1"]}}'},
    }

    hidden = anonymous(value, ["debian"])

    assert hidden["uuid"] == hidden["serial"] == "<hidden>"
    assert hidden["upper"] == "GPU-<hidden>"
    assert hidden["nothing"] == {"uuid": None}
    assert hidden["path"].endswith("/venv/bin:/home/<hidden>/lib:/Users/<hidden>")
    if len(home) > 1:
        assert hidden["path"].startswith("~/venv")
    assert hidden["words"][0] == "on <hidden>, with GPU-<hidden>"
    assert hidden["numbers"] == [1, 2.5, None, True]
    assert hidden["environ"] == {"TF_CONFIG": "<hidden>"}
    # A machine may be called like its distribution.
    assert anonymous([host], [host]) == [host]


def test_diagnosis_is_json_without_identity():
    system = boxes.healthy(environ={"CUDA_VISIBLE_DEVICES": "0,GPU-00000003"})
    text = json.dumps(anonymous(dataclasses.asdict(doctor(system).system)))

    assert "GPU-0000" not in text and "GPU-<hidden>" in text
    assert '"pci_bus_id": "0000:05:00.0"' in text


def test_example_in_the_readme_is_true():
    from tests.machine.doctor.test_checks import TABLE

    readme = pathlib.Path(__file__).parents[3].joinpath("README.md").read_text("utf-8")
    shown = readme.partition("$ k80keras doctor\n")[2].partition("\n```")[0]

    assert shown == str(doctor(TABLE["TensorFlow too new"][0]))
