"""Importing the package costs nothing, and says what is missing when used."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import k80keras

# A finder before all others, as if TensorFlow were not installed.
WITHOUT_TENSORFLOW = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_python(code: str) -> str:
    """Returns what a fresh interpreter prints; fails with its traceback."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["k80keras", "k80keras.machine"])
def test_import_loads_neither_tensorflow_nor_keras(module: str) -> None:
    loaded = run_python(f"import {module}, sys; print(*sys.modules, sep='\\n')")

    assert not {"tensorflow", "keras", "tf_keras"} & set(loaded.splitlines())


def test_import_takes_less_than_60_ms() -> None:
    code = """
        import time
        start = time.perf_counter()
        import k80keras
        print(time.perf_counter() - start)
    """
    # The best of three: a busy machine must not fail the test.
    assert min(float(run_python(code)) for _ in range(3)) < 0.060


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'k80keras' has no attribute 'nope'"):
        k80keras.nope


def test_every_public_name_is_listed_and_found() -> None:
    assert len(k80keras.__all__) <= 16 + len(["__version__"])
    assert set(k80keras.__all__) <= set(dir(k80keras))
    for name in k80keras.__all__:
        assert getattr(k80keras, name) is not None


def test_without_tensorflow_the_error_says_what_to_install() -> None:
    message = run_python(
        WITHOUT_TENSORFLOW
        + textwrap.dedent(
            """
            import k80keras
            try:
                k80keras.K80Tuner
            except ImportError as error:
                print(error)
            """
        )
    )

    assert 'pip install "k80keras[k80]"' in message
    assert 'pip install "k80keras[tensorflow]"' in message
