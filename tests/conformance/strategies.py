"""Two logical CPUs that stand for two dies."""

from __future__ import annotations

import functools

from k80keras._keras import tf


@functools.cache
def strategy_of_two_dies():
    """One for all tests, with the collectives that `MirroredStrategy` defaults to.

    A second strategy would count their keys from the start again, and plain Keras
    aborts when two models meet under one key.
    """
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def two_dies():
    return strategy_of_two_dies().scope()


def two_dies_without_collectives():
    reduction = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction)
    return strategy.scope()
