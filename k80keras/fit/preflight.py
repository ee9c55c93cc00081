"""Does XLA train a small model on this machine? Asked of a child process.

XLA may abort the process instead of raising (TensorFlow 2.14.1 does so for a
matmul on compute capability 3.7), and no `except` contains that.
"""

from __future__ import annotations

import os
import subprocess
import sys

from k80keras.machine.sources.child import with_import_path

TIMEOUT_SECONDS = 120.0


class Preflight:
    """A child process that trains one step with and without XLA."""

    def __init__(self) -> None:
        environ = with_import_path(os.environ)
        environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def poll(self) -> str | None:
        """Returns `None` while it runs, `""` if it passed, else what failed."""
        code = self._child.poll()
        if code is None:
            return None
        if code == 0:
            return ""
        if code < 0:
            return f"XLA ended a test process with signal {-code}"
        return f"XLA failed in a test process (exit code {code})"

    def wait(self) -> str:
        """Waits for the answer, at most `TIMEOUT_SECONDS`."""
        try:
            self._child.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            return f"XLA hung a test process for {TIMEOUT_SECONDS:.0f} s"
        return self.poll() or ""

    def stop(self) -> None:
        """Ends the child if it still runs."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()


def _train_once() -> None:
    """Runs a step of convolution, matmul and their gradients, both ways."""
    import numpy as np

    from k80keras._keras import tf

    images = tf.reshape(tf.range(8 * 8 * 8 * 3, dtype=tf.float32), [8, 8, 8, 3]) / 1e3
    kernel = tf.fill([3, 3, 3, 4], 0.1)
    matrix = tf.fill([8 * 8 * 4, 5], 0.01)

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([kernel, matrix])
            hidden = tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME"))
            loss = tf.reduce_mean(tf.reshape(hidden, [8, -1]) @ matrix)
        return tape.gradient(loss, [kernel, matrix])  # type: ignore[no-any-return]

    compiled = tf.function(gradients, jit_compile=True)
    for ours, theirs in zip(compiled(), gradients()):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3)


if __name__ == "__main__":
    _train_once()
