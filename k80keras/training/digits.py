"""Scikit-learn's handwritten digits as a TensorFlow Datasets set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from k80keras.errors import MissingDependencyError

_TRAIN_EXAMPLES = 1437


class Digits(tfds.core.GeneratorBasedBuilder):
    """1,797 grey images of 8 x 8 pixels: the test set of UCI's optical digits.

    The last 360 images, a fifth, are the test split. The images are ordered by
    writer, roughly, so most of them come from hands that were not trained on.
    The original 17 levels of grey are spread over 0 ... 255.
    """

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits, 8 x 8 pixels, as in scikit-learn.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        del dl_manager  # nothing is downloaded
        return {
            "train": self._generate_examples(0, _TRAIN_EXAMPLES),
            "test": self._generate_examples(_TRAIN_EXAMPLES, None),
        }

    def _generate_examples(
        self, start: int, stop: int | None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        import numpy as np

        digits = _load_digits()
        pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
        for index in range(len(pixels))[start:stop]:
            label = int(digits.target[index])
            yield index, {"image": pixels[index], "label": label}


def default_data_dir() -> Path:
    """Returns where prepared datasets are kept unless the user says otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "k80keras" / "datasets"


def _load_digits() -> Any:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError(
            'The digits come with scikit-learn: pip install "k80keras[datasets]"'
        ) from error
    return load_digits()
