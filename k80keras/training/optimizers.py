"""Any Keras optimizer, by name."""

from __future__ import annotations

import inspect
from typing import Any

from k80keras._keras import keras
from k80keras.errors import InvalidArgumentError
from k80keras.training.names import did_you_mean, fold


def make_optimizer(name: str, learning_rate: float | None = None) -> Any:
    """Returns the `keras.optimizers` optimizer called `name`.

    Args:
      name: String. Compared without case: `"sgd"` is `SGD`.
      learning_rate: Float or `None`. Defaults to the optimizer's own.

    Raises:
      InvalidArgumentError: If there is no such optimizer.
    """
    known = {fold(n): c for n, c in vars_of(keras.optimizers) if _is_usable(c)}
    cls = known.get(fold(name))
    if cls is None:
        names = sorted(c.__name__ for c in known.values())
        raise InvalidArgumentError(
            "--optimizer must be the name of a Keras optimizer. Received: "
            f"--optimizer={name}.{did_you_mean(name, names)} Known: {', '.join(names)}"
        )
    return cls() if learning_rate is None else cls(learning_rate=learning_rate)


def vars_of(module: Any) -> list[tuple[str, Any]]:
    """Returns the public members of a lazily loaded module, by name."""
    return [(n, getattr(module, n)) for n in dir(module) if not n.startswith("_")]


def _is_usable(member: Any) -> bool:
    """Returns whether it is an optimizer that needs nothing but a rate."""
    base = keras.optimizers.Optimizer
    if not inspect.isclass(member) or not issubclass(member, base) or member is base:
        return False
    parameters = list(inspect.signature(member.__init__).parameters.values())[1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (2, 4)]
    return not needed and any(p.name == "learning_rate" for p in parameters)
