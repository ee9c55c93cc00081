"""Is the training step faster when XLA compiles it? Only a measurement tells.

The comparison trains on scratch: all variables of the step are put back, so it
leaves no trace in the training, whatever it finds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from k80keras import _keras
from k80keras._keras import tf
from k80keras.fit import timing
from k80keras.fit.fused import FusedFunction, replay
from k80keras.machine import cuda_tools

_OLDEST_CAPABILITY = (5, 0)
_ROUND_SECONDS = 0.05
_FEWEST_ROUNDS, _MOST_ROUNDS, _ALL_ROUNDS_SECONDS = 4, 16, 3.0


def why_not_compile(model: Any) -> str | None:
    """Returns why XLA must not be tried on this model, else `None`."""
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas > 1:
        return f"XLA leaks or aborts under a strategy of {replicas} replicas"
    return why_not_on(compute_capabilities())


def why_not_on(capabilities: list[tuple[int, int]]) -> str | None:
    """Returns why XLA must not be tried on GPUs of these capabilities."""
    for major, minor in capabilities:
        if (major, minor) < _OLDEST_CAPABILITY:
            return (
                f"compute capability {major}.{minor} is below 5.0: "
                "there TensorFlow 2.14 aborts the process on an XLA matmul"
            )
    return None


def compute_capabilities() -> list[tuple[int, int]]:
    """Returns the compute capability of each visible GPU."""
    found = []
    for gpu in tf.config.get_visible_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        found.append(tuple(details.get("compute_capability") or _OLDEST_CAPABILITY))
    return found


def tame_optimizers(model: Any) -> str | None:
    """Keeps Keras 2's compiled optimizer update only where XLA can build it.

    Returns:
      One line about what was switched off, or `None`.
    """
    optimizers = _keras.optimizers_compiled_by_xla(model)
    if not optimizers or not tf.config.get_visible_devices("GPU"):
        return None
    tools = {"ptxas": cuda_tools.find_ptxas(), "libdevice": cuda_tools.find_libdevice()}
    missing = [name for name, path in tools.items() if path is None]
    if not missing:
        return None
    for optimizer in optimizers:
        optimizer.jit_compile = False
    return (
        f"switched off XLA in the optimizer: {' and '.join(missing)} not found "
        '(pip install "k80keras[k80]" brings both)'
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Seconds per step as Keras runs it (`safe`) and compiled (`xla`).

    Attributes:
      compile_seconds: Float. What the first compiled step took.
      steps: Int. Steps in each timed execution.
      safe: Tuple of floats, one for each round.
      xla: Tuple of floats, one for each round.
    """

    compile_seconds: float
    steps: int = 0
    safe: tuple[float, ...] = ()
    xla: tuple[float, ...] = ()

    @property
    def xla_wins(self) -> bool:
        """Whether XLA is faster by more than the noise."""
        sure = timing.gap_exceeds_noise(self.safe, self.xla)
        return sure or timing.wins_pairs(self.safe, self.xla)


def compiled_variant(fused: FusedFunction, batch: Any) -> FusedFunction:
    """Returns `fused` with XLA for batches of just this shape.

    Other shapes (the odd last batch) go through the step as it is, so nothing
    is ever compiled again in the middle of an epoch.
    """
    shapes = [t.shape for t in tf.nest.flatten(batch, expand_composites=True)]
    no_autograph = tf.autograph.experimental.do_not_convert
    compiled = tf.function(
        no_autograph(lambda data: fused.step(data)), jit_compile=True
    )

    def step(data: Any) -> Any:
        parts = tf.nest.flatten(data, expand_composites=True)
        if all(part.shape.is_fully_defined() for part in parts):
            return compiled(data)
        same = [tf.reduce_all(tf.shape(t) == s) for t, s in zip(parts, shapes)]
        return tf.cond(
            tf.reduce_all(same), lambda: compiled(data), lambda: fused.step(data)
        )

    return FusedFunction(tf.function(no_autograph(step), reduce_retracing=True))


def compare(
    fused: FusedFunction,
    variant: FusedFunction,
    batch: Any,
    spec: Any,
    clock: Callable[[], float],
    drain: Callable[[Any], None] | None,
    compile_only: bool,
) -> Comparison:
    """Times both, in turns, on scratch; compiles `variant` on the way.

    Args:
      fused: The step as it runs now.
      variant: What `compiled_variant` made of it.
      batch: A batch of the training data.
      spec: Element spec of the iterator that it was pulled from.
      clock: Function that returns seconds.
      drain: Waits for the device, see `Stepper`.
      compile_only: Bool. Whether to time nothing but the compilation.
    """
    if fused.holds_random_state(spec):
        # Its kernels count the numbers they drew; use others.
        fused = FusedFunction(fused.step)

    def timed(function: FusedFunction, steps: int) -> float:
        started = clock()
        _, logs, _ = function(iterator, steps)
        if drain is not None:
            drain(logs)
        return (clock() - started) / steps

    with fused.scratch(spec):
        iterator = replay(batch, spec, -1)
        compile_seconds = timed(variant, 1)
        if compile_only:
            return Comparison(compile_seconds)
        timed(fused, 1)
        steps = 1
        while (seconds := steps * timed(fused, steps)) < _ROUND_SECONDS and steps < 256:
            steps *= 2
        affordable = int(_ALL_ROUNDS_SECONDS / (2 * seconds))
        rounds = max(_FEWEST_ROUNDS, min(affordable, _MOST_ROUNDS))
        timed(variant, steps)
        pairs = [(timed(fused, steps), timed(variant, steps)) for _ in range(rounds)]
    safe, compiled = zip(*pairs)
    return Comparison(compile_seconds, steps, safe, compiled)
