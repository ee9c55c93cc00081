from __future__ import annotations

import pytest

from k80keras.distribute.batch_size import global_batch_size
from k80keras.errors import InvalidArgumentError
from tests.conformance.strategies import strategy_of_two_dies


def test_is_that_of_all_replicas():
    assert global_batch_size(64) == 64
    assert global_batch_size(64, strategy_of_two_dies()) == 128
    with strategy_of_two_dies().scope():
        assert global_batch_size(1) == 2


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "64", None])
def test_bad_sizes(size):
    with pytest.raises(InvalidArgumentError, match="an int of 1 or more. Received"):
        global_batch_size(size)
