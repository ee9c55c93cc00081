"""Keras callbacks, one to a file."""

from k80keras.callbacks.k80_tuner import K80Tuner

__all__ = ["K80Tuner"]
