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
    from k80keras.callbacks import LearningRateWarmup as LearningRateWarmup
    from k80keras.distribute.mirrored import mirrored_strategy as mirrored_strategy
    from k80keras.machine.configure.apply import configure as configure
    from k80keras.machine.doctor.examine import doctor as doctor
    from k80keras.machine.probe import probe as probe

_HOMES = {
    "K80Tuner": "k80keras.callbacks",
    "LearningRateWarmup": "k80keras.callbacks",
    "configure": "k80keras.machine.configure.apply",
    "doctor": "k80keras.machine.doctor.examine",
    "mirrored_strategy": "k80keras.distribute.mirrored",
    "probe": "k80keras.machine.probe",
}

__all__ = [
    "K80Tuner",
    "LearningRateWarmup",
    "configure",
    "doctor",
    "mirrored_strategy",
    "probe",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
