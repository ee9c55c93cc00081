from __future__ import annotations

import subprocess

from k80keras.machine.configure.export import export_lines
from k80keras.machine.configure.settings import Setting


def test_a_shell_takes_the_lines_over() -> None:
    odd = 'it\'s $HOME; `ls` "x"'
    text = export_lines(
        [
            Setting("K80_ODD", None, odd, "why"),
            Setting("PATH", "/old:/bin", "/a b/bin:/old:/bin", "why"),
            Setting("K80_PINNED", "theirs", "theirs", "set by the user", pinned=True),
        ]
    )
    script = text + 'printf "%s\\n" "$K80_ODD" "$PATH" "${K80_PINNED-unset}"'
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", script],
        env={"PATH": "/job"},
        capture_output=True,
        text=True,
        check=True,
    )
    # A job script's PATH is that of its machine, not of the one that wrote it.
    assert done.stdout.splitlines() == [odd, "/a b/bin:/job", "unset"]


def test_text() -> None:
    rows = [
        Setting("TF_GPU_THREAD_COUNT", None, "2", "two are enough"),
        Setting("XLA_FLAGS", "--a", "--a", "the user's stands", pinned=True),
        Setting("memory limit", None, "8192 MiB", "as asked for"),
        Setting("preload of cuDNN", None, "/n", "it would abort", command="ln -s a b"),
        Setting("data layout", None, None, "nothing to do", state="note"),
    ]
    assert export_lines(rows) == (
        "# TF_GPU_THREAD_COUNT: two are enough\n"
        "export TF_GPU_THREAD_COUNT=2\n"
        "# XLA_FLAGS=--a: the user's stands\n"
        "# memory limit: as asked for\n"
        "# only k80keras.configure(memory_limit_bytes=...) can do that\n"
        "# preload of cuDNN: it would abort\n"
        "# once: ln -s a b\n"
        "# data layout: nothing to do\n"
    )
    assert export_lines([]) == ""
