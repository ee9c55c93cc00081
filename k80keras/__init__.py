"""k80keras: Keras on a Tesla K80, and a live tuner for every Keras `fit`.

Importing this package loads neither TensorFlow nor Keras: environment
variables must still be settable before they load. A name is imported when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from k80keras.callbacks import K80Tuner as K80Tuner

_HOMES = {
    "K80Tuner": "k80keras.callbacks",
}

__all__ = ["K80Tuner", "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
