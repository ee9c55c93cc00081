"""Every test starts from the same seed, with a fresh Keras and two CPU devices."""

from __future__ import annotations

import os
import random
from typing import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow import keras  # noqa: E402

# Before TensorFlow initialises: `MirroredStrategy(["CPU:0", "CPU:1"])` is then
# two dies without a card.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)


@pytest.fixture(autouse=True)
def fresh_keras() -> Iterator[None]:
    """Seeds everything; puts back what a test may have changed for the next."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    policy = keras.mixed_precision.global_policy()
    keras.utils.set_random_seed(1)
    yield
    keras.mixed_precision.set_global_policy(policy)
    keras.backend.clear_session()
    np.random.set_state(numpy_state)
    random.setstate(python_state)
