"""Keras callbacks, one to a file."""

from k80keras.callbacks.k80_tuner import K80Tuner
from k80keras.callbacks.learning_rate_warmup import LearningRateWarmup

__all__ = ["K80Tuner", "LearningRateWarmup"]
