"""Batches that feed every replica, counted in TensorFlow's own shares."""

from __future__ import annotations

import numpy as np
import pytest

from k80keras._keras import keras, tf
from k80keras.data.replicas import batches_for_replicas
from k80keras.errors import InvalidArgumentError
from tests.conformance.strategies import strategy_of_two_dies


class Replicas:
    """What `batches_for_replicas` needs of a strategy with more dies than here."""

    def __init__(self, number):
        self.num_replicas_in_sync = number


def shares(dataset):
    """Returns how many samples each replica of two gets at each step."""
    strategy = strategy_of_two_dies()
    return [
        [len(share) for share in strategy.experimental_local_results(batch)]
        for batch in strategy.experimental_distribute_dataset(dataset)
    ]


def numbers(samples, batch_size):
    return tf.data.Dataset.range(samples).batch(batch_size)


def sizes(dataset):
    return [len(batch) for batch in dataset.as_numpy_iterator()]


def test_without_this_a_replica_gets_nothing():
    assert shares(numbers(9, 4)) == [[2, 2], [2, 2], [1, 0]]


@pytest.mark.parametrize(
    "samples, expected",
    [
        (8, [[2, 2], [2, 2]]),
        (9, [[2, 2], [1, 1], [2, 1]]),
        (10, [[2, 2], [2, 2], [1, 1]]),
        (11, [[2, 2], [2, 2], [2, 1]]),
        (5, [[1, 1], [2, 1]]),
        (2, [[1, 1]]),
    ],
)
@pytest.mark.parametrize("is_mapped", [False, True])  # its batch size is then unknown
def test_two_replicas(samples, expected, is_mapped):
    data = numbers(samples, 4)
    if is_mapped:
        data = data.map(lambda x: x)
    fed = batches_for_replicas(data, strategy=strategy_of_two_dies())

    assert int(fed.cardinality()) == len(expected)
    assert shares(fed) == expected
    assert shares(fed) == expected  # the second epoch
    assert np.concatenate(list(fed.as_numpy_iterator())).tolist() == list(
        range(samples)
    )


@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("shares", [1, 2])  # of as many samples as there are replicas
def test_any_remainder_feeds_any_number_of_replicas(replicas, shares):
    size = shares * replicas**2
    for rest in {
        1,
        2,
        replicas,
        replicas + 1,
        (replicas - 1) ** 2,
        size // 2,
        size - 1,
    }:
        total = size * 2 + rest
        data = numbers(total, size)
        found = sizes(batches_for_replicas(data, strategy=Replicas(replicas)))
        assert sum(found) == total and len(found) == 3
        assert max(found) <= size
        for n in found:
            share = -(-n // replicas)
            assert n - share * (replicas - 1) >= 1, (size, rest, found)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_drop(is_mapped):
    data = numbers(9, 4)
    if is_mapped:
        data = data.map(lambda x: x)
    fed = batches_for_replicas(data, strategy=strategy_of_two_dies(), remainder="drop")
    assert shares(fed) == [[2, 2], [2, 2]]
    samples = tf.data.Dataset.range(9)
    fed = batches_for_replicas(samples, 4, strategy_of_two_dies(), "drop")
    assert int(fed.cardinality()) == 2
    assert sizes(fed) == [4, 4]


def test_elements_keep_their_structure():
    x = {"a": np.arange(9), "b": np.arange(18.0).reshape(9, 2)}
    y = np.array(list("abcdefghi"))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    fed = batches_for_replicas(data, strategy=Replicas(2))
    assert fed.element_spec == data.element_spec
    got = [(e["b"][:, 0] / 2, e["a"], text) for e, text in fed.as_numpy_iterator()]
    for b, a, text in got:
        assert b.tolist() == a.tolist()
        assert [y[n].encode() for n in a] == text.tolist()
    only = tf.data.Dataset.from_tensor_slices((np.arange(9),)).batch(4)
    fed = batches_for_replicas(only, strategy=Replicas(2))
    assert fed.element_spec == only.element_spec
    assert [len(x) for (x,) in fed] == [4, 2, 3]


def test_arrays_lie_on_the_host_and_are_shuffled_anew():
    x, y = np.arange(101), np.arange(101) * 2
    fed = batches_for_replicas((x, y), 10, Replicas(2), shuffle=True)
    assert int(fed.cardinality()) == 11
    epochs = []
    for _ in range(2):
        batches = list(fed)
        assert [len(a) for a, _ in batches] == [10] * 9 + [6, 5]
        assert {tensor.device[-5:] for tensor in batches[0]} == {"CPU:0"}
        for a, b in batches:
            np.testing.assert_array_equal(a * 2, b)
        epochs.append(np.concatenate([a for a, _ in batches]).tolist())
    assert sorted(epochs[0]) == sorted(epochs[1]) == x.tolist()
    assert x.tolist() != epochs[0] != epochs[1]
    assert sizes(batches_for_replicas(x, 10)) == [10] * 10 + [1]


def test_the_shard_policy_is_set_unless_it_was_chosen():
    policies = tf.data.experimental.AutoShardPolicy

    def policy(dataset):
        fed = batches_for_replicas(dataset, strategy=Replicas(2))
        return fed.options().experimental_distribute.auto_shard_policy

    assert policy(numbers(9, 4)) == policies.DATA
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.FILE
    assert policy(numbers(9, 4).with_options(options)) == policies.FILE


def test_endless_data_stay_endless():
    fed = batches_for_replicas(numbers(9, 4).repeat(), strategy=Replicas(2))
    assert int(fed.cardinality()) == tf.data.INFINITE_CARDINALITY


@pytest.mark.slow
@pytest.mark.parametrize("remainder", ["merge", "drop"])
def test_batch_normalization_stays_finite(remainder):
    """One sample is left in training data and in validation data."""
    strategy = strategy_of_two_dies()
    random = np.random.default_rng(1)
    data = (
        random.normal(size=(17, 3)).astype("float32"),
        random.normal(size=(17, 1)).astype("float32"),
    )
    with strategy.scope():
        layers = [keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile("sgd", "mse", metrics=["mae"])
        fed = batches_for_replicas(data, 8, remainder=remainder)
    history = model.fit(fed, validation_data=fed, epochs=2, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize(
    "data, arguments, told",
    [
        (np.arange(9), {}, "arrays need a global_batch_size"),
        (np.arange(9), {"global_batch_size": 5}, "multiple of 2.*Received: 5"),
        (np.arange(9), {"global_batch_size": True}, "Received: True"),
        ((np.arange(9), np.arange(8)), {"global_batch_size": 4}, r"shapes \(9,\), \(8"),
        (np.float32(3), {"global_batch_size": 4}, "samples on their first axis"),
        (np.arange(1), {"global_batch_size": 4}, "enough samples for 2 replicas"),
        (iter([]), {"global_batch_size": 4}, "must be a tf.data.Dataset or arrays"),
        (tf.data.Dataset.range(9), {}, "first axis counts samples"),
        (numbers(9, 5), {}, "a multiple of 2 samples.*Make it 6"),
        (numbers(9, 2), {}, "2x2 samples or more.*or batches of 4"),
        (numbers(9, 4), {"shuffle": True}, "shuffle is for arrays"),
        (numbers(9, 4), {"remainder": "pad"}, "Received: 'pad'"),
        (
            tf.data.Dataset.range(9).map(lambda n: tf.ones([n])).padded_batch(4),
            {},
            'one shape beyond.*Use remainder="drop"',
        ),
    ],
)
def test_bad_values(data, arguments, told):
    with pytest.raises(InvalidArgumentError, match=told):
        batches_for_replicas(data, strategy=Replicas(2), **arguments)


def test_what_shows_while_reading():
    def read(samples, batch_size):
        data = numbers(samples, batch_size).map(lambda x: x)
        return list(batches_for_replicas(data, strategy=Replicas(2)))

    with pytest.raises(tf.errors.InvalidArgumentError, match="a sample for each of 2"):
        read(1, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="have 4 samples or more"):
        read(9, 2)
