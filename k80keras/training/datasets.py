"""Datasets by name, as batches whose order depends on seed and epoch alone."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from k80keras._keras import tf
from k80keras.errors import InvalidArgumentError
from k80keras.training.config import FOLDER_PREFIX
from k80keras.training.source import Source

# Decoded images up to this size stay in memory.
_CACHE_BYTES = 512 * 2**20
# Encoded images, or paths, that are shuffled at a time.
_SHUFFLE_COUNT = 20_000


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """A dataset, split and ready for `fit`.

    Attributes:
      input_shape: Tuple `(height, width, channels)` of an image.
      num_classes: Int.
      train_examples: Int. Images to train on.
      validation_examples: Int. Images to validate on.
      steps_per_epoch: Int. Full batches in an epoch.
      validation: `tf.data.Dataset` of pairs: float32 pixels in 0 ... 255,
        `[N, height, width, channels]`, and int64 labels, `[N]`.
      train: Callable `(first_epoch, epochs) -> tf.data.Dataset` of such pairs,
        `steps_per_epoch` full batches for each of the epochs `first_epoch`,
        ..., `epochs - 1`. The order within an epoch depends on the seed and the
        epoch. Images that don't fill a batch are left out of that epoch: every
        batch has the same shape, which XLA and fused steps want.
      find_damage: Callable that says in one sentence which files can't be read,
        or returns `None`. It may read everything.
    """

    input_shape: tuple[int, int, int]
    num_classes: int
    train_examples: int
    validation_examples: int
    steps_per_epoch: int
    validation: Any
    train: Callable[[int, int], Any]
    find_damage: Callable[[], str | None]

    def facts(self) -> dict[str, Any]:
        """Returns, as JSON has them, what tells that data is the same data."""
        return {
            "input_shape": list(self.input_shape),
            "num_classes": self.num_classes,
            "train_examples": self.train_examples,
            "validation_examples": self.validation_examples,
        }


def load_dataset(
    name: str,
    batch_size: int,
    seed: int,
    data_dir: str | None = None,
    image_size: int | None = None,
) -> TrainingData:
    """Loads a dataset of labelled images, preparing it first if need be.

    Args:
      name: String. `"digits"` (scikit-learn's 1,797 handwritten digits; needs
        no network), `"folder:PATH"` (a subfolder of images for each class), or
        the name of a TensorFlow Datasets set of images with labels.
      batch_size: Int.
      seed: Int. Decides the order of the images.
      data_dir: String or `None`. Where prepared sets are kept. Defaults to
        `~/.cache/k80keras/datasets` for digits and to TensorFlow Datasets' own
        folder for others.
      image_size: Int or `None`. Resizes images to a square of that many pixels.
        Defaults to the size that all of them share, else 224.

    Returns:
      `TrainingData`.

    Raises:
      InvalidArgumentError: If there is no such set, if it isn't one of labelled
        images, if it can't be had or read, or if it has not even one batch.
      MissingDependencyError: If TensorFlow Datasets or scikit-learn is missing.
    """
    source = _find_source(name, data_dir, image_size)
    steps_per_epoch = source.train_examples // batch_size
    if steps_per_epoch == 0:
        raise InvalidArgumentError(
            f"--batch_size must be at most the {source.train_examples} images that "
            f"{name} has to train on. Received: --batch_size={batch_size}"
        )
    try:
        one_epoch = _order_of_epochs(source, batch_size, seed)
    except tf.errors.OpError as error:
        raise InvalidArgumentError(source.find_damage() or str(error)) from error

    def train(first_epoch: int, epochs: int) -> Any:
        steps = steps_per_epoch * (epochs - first_epoch)
        return (
            tf.data.Dataset.range(first_epoch, epochs)
            .flat_map(one_epoch)
            .map(_to_float, tf.data.AUTOTUNE)
            .apply(tf.data.experimental.assert_cardinality(steps))
            .prefetch(tf.data.AUTOTUNE)
        )

    return TrainingData(
        input_shape=source.image_shape,
        num_classes=source.num_classes,
        train_examples=source.train_examples,
        validation_examples=source.validation_examples,
        steps_per_epoch=steps_per_epoch,
        validation=_validation_batches(source, batch_size),
        train=train,
        find_damage=source.find_damage,
    )


def _find_source(name: str, data_dir: str | None, image_size: int | None) -> Source:
    # Imported when asked for: an image folder needs no TensorFlow Datasets.
    if name.startswith(FOLDER_PREFIX):
        from k80keras.training.folder import read_folder

        return read_folder(name[len(FOLDER_PREFIX) :], image_size)
    from k80keras.training.catalogue import read_tfds

    return read_tfds(name, data_dir, image_size)


def _order_of_epochs(
    source: Source, batch_size: int, seed: int
) -> Callable[[Any], Any]:
    """Returns a function from an epoch (int64 tensor) to its batches.

    Small sets are decoded here and now and stay in memory; a batch is then one
    look-up. Others are shuffled while still encoded, then decoded.
    """
    if _fits_in_memory(source, source.train_examples):
        decoded = source.train.map(source.decode, tf.data.AUTOTUNE)
        images, labels = decoded.batch(source.train_examples).get_single_element()

        def from_memory(epoch: Any) -> Any:
            order = tf.random.experimental.stateless_shuffle(
                tf.range(source.train_examples), seed=[seed, epoch]
            )
            batches = tf.data.Dataset.from_tensor_slices(order).batch(
                batch_size, drop_remainder=True
            )
            return batches.map(lambda i: (tf.gather(images, i), tf.gather(labels, i)))

        return from_memory

    def from_source(epoch: Any) -> Any:
        shuffled = _shuffled(source.train, seed, epoch)
        decoded = shuffled.map(source.decode, tf.data.AUTOTUNE)
        return decoded.batch(batch_size, drop_remainder=True)

    return from_source


def _shuffled(dataset: Any, seed: int, epoch: Any) -> Any:
    """Returns `dataset` in the order of one epoch.

    `Dataset.shuffle` mixes the process' global seed into its own and counts its
    iterations from the start of the process: a resumed run would see another
    order. The operation below it takes both numbers as they are.
    """
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.constant(_SHUFFLE_COUNT, tf.int64),
        # Two zeros would ask for a random order.
        seed=tf.constant(seed + 1, tf.int64),
        seed2=epoch + 1,
        reshuffle_each_iteration=False,
        output_types=[spec.dtype for spec in dataset.element_spec],
        output_shapes=[spec.shape for spec in dataset.element_spec],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def _validation_batches(source: Source, batch_size: int) -> Any:
    images = source.validation.map(source.decode, tf.data.AUTOTUNE)
    batches = images.batch(batch_size)
    if _fits_in_memory(source, source.validation_examples):
        batches = batches.cache()
    return batches.map(_to_float, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _fits_in_memory(source: Source, examples: int) -> bool:
    height, width, channels = source.image_shape
    return examples * height * width * channels <= _CACHE_BYTES


def _to_float(images: Any, labels: Any) -> tuple[Any, Any]:
    return tf.cast(images, tf.float32), labels
