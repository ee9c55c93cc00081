"""Sets of TensorFlow Datasets as sources of labelled images."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from k80keras.errors import InvalidArgumentError, MissingDependencyError
from k80keras.training.locks import lock
from k80keras.training.names import did_you_mean
from k80keras.training.source import DEFAULT_IMAGE_SIZE, Source, resize

try:
    import tensorflow_datasets as tfds
except ImportError as error:
    raise MissingDependencyError(
        "TensorFlow Datasets could not be loaded "
        f'({error}): pip install "k80keras[datasets]"'
    ) from error

_VALIDATION_SPLITS = ("validation", "test")


def read_tfds(name: str, data_dir: str | None, image_size: int | None) -> Source:
    """Returns a set of TensorFlow Datasets, downloaded if it isn't on disk.

    Validation takes the split `validation`, else `test`, else the last tenth of
    `train`.

    Args:
      name: String, such as `"cifar10"`, or `"digits"` for the set of our own.
      data_dir: String or `None`. Defaults as in `load_dataset`.
      image_size: Int or `None`. Defaults to the images' own size, else 224.

    Raises:
      InvalidArgumentError: If there is no such set, if it isn't one of images
        with labels, or if it can't be downloaded.
    """
    tfds.disable_progress_bar()
    builder = _prepared_builder(name, data_dir)
    image_key, label_key = _keys_of_image_and_label(name, builder.info)
    feature = builder.info.features[image_key]
    shape = _image_shape(feature, image_size)
    train_split, validation_split = _choose_splits(name, builder.info)

    def read(split: str) -> Any:
        # As on disk and without decoding: shuffling then moves small things.
        examples = builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders={image_key: tfds.decode.SkipDecoding()},
        )
        return examples.map(lambda x: (x[image_key], x[label_key]))

    def decode(encoded: Any, label: Any) -> tuple[Any, Any]:
        return resize(feature.decode_example(encoded), shape), label

    return Source(
        train=read(train_split),
        validation=read(validation_split),
        train_examples=builder.info.splits[train_split].num_examples,
        validation_examples=builder.info.splits[validation_split].num_examples,
        decode=decode,
        image_shape=shape,
        num_classes=builder.info.features[label_key].num_classes,
    )


def _prepared_builder(name: str, data_dir: str | None) -> Any:
    builder = _make_builder(name, data_dir)
    # Before gigabytes are fetched.
    _keys_of_image_and_label(name, builder.info)
    if builder.is_prepared():
        return builder
    try:
        with _one_at_a_time(builder):
            builder = _make_builder(name, data_dir)  # as it is on disk by now
            if not builder.is_prepared():
                _require_network(builder)
                builder.download_and_prepare()
    except MissingDependencyError:
        raise
    except Exception as error:
        # Anything may go wrong in a builder: network, disk, its own code.
        raise InvalidArgumentError(
            f"--dataset={name} must be on disk or to be had from the network. It is "
            f"not in {builder.data_dir}, and preparing it failed "
            f"({_first_line(error)}). Name a folder that holds it, or that can be "
            "written, with --data_dir"
        ) from error
    return builder


def _make_builder(name: str, data_dir: str | None) -> Any:
    if name == "digits":
        from k80keras.training.digits import Digits, default_data_dir

        return Digits(data_dir=data_dir or default_data_dir())
    try:
        return tfds.builder(name, data_dir=data_dir, try_gcs=False)
    except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
        known = ["digits", *tfds.list_builders(with_community_datasets=False)]
        raise InvalidArgumentError(
            "--dataset must be digits, folder:PATH or a name of TensorFlow Datasets. "
            f"Received: --dataset={name}.{did_you_mean(name, known)}"
        ) from error


def _require_network(builder: Any) -> None:
    """Finds out at once what downloading finds out after minutes of retries.

    Raises:
      OSError: If files are needed from a host whose name nobody knows.
    """
    downloads = Path(builder.data_dir).parents[1] / "downloads"
    had = [p for p in downloads.rglob("*") if p.is_file() and ".tmp." not in p.name]
    if had or urllib.request.getproxies():
        return  # there may be no need to ask, or somebody else who knows
    for host in {urlsplit(url).hostname for url in builder.url_infos or ()}:
        if host is not None:
            try:
                socket.getaddrinfo(host, None)
            except OSError as error:
                raise OSError(f"{host} can't be found: {error.strerror}") from error


@contextmanager
def _one_at_a_time(builder: Any) -> Iterator[None]:
    """Lets processes that want the same set take turns.

    TensorFlow Datasets writes to a folder of another name and renames it: a
    kill leaves nothing half written, but the second of two renames fails.
    """
    folder = Path(builder.data_dir).parent
    if "://" in str(builder.data_dir):  # no locks in a bucket
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, wait=True):
        yield


def _keys_of_image_and_label(name: str, info: Any) -> tuple[str, str]:
    """Returns the names of the two features, if the set has such a pair."""
    keys, features = info.supervised_keys, info.features
    if (
        keys is None
        or len(keys) != 2
        or not all(isinstance(key, str) for key in keys)
        or not isinstance(features[keys[0]], tfds.features.Image)
        or not isinstance(features[keys[1]], tfds.features.ClassLabel)
    ):
        raise InvalidArgumentError(
            "--dataset must be a set of images with one label each. Received: "
            f"--dataset={name}, whose supervised pair is {keys}"
        )
    return keys[0], keys[1]


def _image_shape(feature: Any, image_size: int | None) -> tuple[int, int, int]:
    height, width, channels = feature.shape
    if image_size is not None or height is None or width is None:
        height = width = image_size or DEFAULT_IMAGE_SIZE
    return height, width, channels or 3


def _choose_splits(name: str, info: Any) -> tuple[str, str]:
    if "train" not in info.splits:
        raise InvalidArgumentError(
            "--dataset must have a split to train on. Received: "
            f"--dataset={name} with the splits {', '.join(info.splits) or 'none'}"
        )
    for split in _VALIDATION_SPLITS:
        if split in info.splits:
            return "train", split
    return "train[:90%]", "train[90%:]"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
