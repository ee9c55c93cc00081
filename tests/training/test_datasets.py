from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from k80keras._keras import tf
from k80keras.errors import InvalidArgumentError
from k80keras.training import datasets
from k80keras.training.datasets import TrainingData, load_dataset
from tests.training.conftest import ROOT


def labels_of(
    data: TrainingData, first_epoch: int, epochs: int
) -> np.ndarray[Any, Any]:
    """Returns labels as `[epoch, step, position in the batch]`."""
    batches = [labels.numpy() for _, labels in data.train(first_epoch, epochs)]
    return np.reshape(batches, (epochs - first_epoch, data.steps_per_epoch, -1))


@pytest.fixture(params=["from memory", "streamed"])
def placement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "streamed":
        monkeypatch.setattr(datasets, "_CACHE_BYTES", 0)


def test_digits_are_the_real_ones(data_dir: str) -> None:
    from sklearn.datasets import load_digits

    data = load_dataset("digits", 100, seed=0, data_dir=data_dir)
    assert (data.input_shape, data.num_classes) == ((8, 8, 1), 10)
    assert (data.train_examples, data.validation_examples) == (1437, 360)
    images, labels = data.validation.unbatch().batch(360).get_single_element()
    assert images.dtype == tf.float32
    # TensorFlow Datasets stores examples in another order.
    levels = np.rint(images.numpy()[..., 0] * 16 / 255)
    found = sorted((int(y), *x.ravel()) for x, y in zip(levels, labels.numpy()))
    digits = load_digits()
    pairs = zip(digits.images[1437:], digits.target[1437:])
    assert found == sorted((int(y), *x.ravel()) for x, y in pairs)


@pytest.mark.usefixtures("placement")
def test_order_depends_on_seed_and_epoch_alone(data_dir: str) -> None:
    tf.random.set_seed(1)
    data = load_dataset("digits", 64, seed=5, data_dir=data_dir)
    whole = labels_of(data, 0, 3)
    assert not np.array_equal(whole[0], whole[1])
    tf.random.set_seed(2)
    again = load_dataset("digits", 64, seed=5, data_dir=data_dir)
    np.testing.assert_array_equal(labels_of(again, 1, 3), whole[1:])
    other = load_dataset("digits", 64, seed=6, data_dir=data_dir)
    assert not np.array_equal(labels_of(other, 0, 1)[0], whole[0])


@pytest.mark.usefixtures("placement")
def test_an_epoch_has_every_image_once(data_dir: str) -> None:
    data = load_dataset("digits", 479, seed=0, data_dir=data_dir)  # 1437 = 3 * 479
    assert data.steps_per_epoch == 3
    images = np.concatenate([x.numpy() for x, _ in data.train(0, 1)])
    first = np.sort(images.reshape(1437, -1).sum(axis=1))
    images = np.concatenate([x.numpy() for x, _ in data.train(4, 5)])
    np.testing.assert_array_equal(first, np.sort(images.reshape(1437, -1).sum(axis=1)))


def test_two_processes_may_prepare_at_once(tmp_path: Path) -> None:
    # Something that a killed process left there must not be in the way.
    (tmp_path / "digits" / "incomplete.ABCDEF_1.0.0").mkdir(parents=True)
    code = (
        "from k80keras.training.datasets import load_dataset\n"
        f"print(load_dataset('digits', 32, 0, {str(tmp_path)!r}).train_examples)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert output.split()[-1] == "1437"


def write_images(folder: Path, count: int, size: int = 10) -> None:
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for index in range(count):
        pixels = noise.integers(0, 255, (size, size, 3), dtype=np.uint8)
        encoded = tf.io.encode_png(pixels).numpy()
        (folder / f"{index:02d}.png").write_bytes(encoded)


def test_folder_is_split_by_class(tmp_path: Path) -> None:
    write_images(tmp_path / "cat", 10)
    write_images(tmp_path / "dog", 5)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    data = load_dataset(f"folder:{tmp_path}", 4, seed=0)
    assert (data.input_shape, data.num_classes) == ((10, 10, 3), 2)
    assert (data.train_examples, data.validation_examples) == (12, 3)
    labels = np.concatenate([y.numpy() for _, y in data.validation])
    assert labels.tolist() == [0, 0, 1]


def test_folder_may_bring_its_own_split(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("val", 2)):
        for name in ("cat", "dog"):
            write_images(tmp_path / split / name, count)
    data = load_dataset(f"folder:{tmp_path}", 4, seed=0, image_size=6)
    assert (data.train_examples, data.validation_examples) == (8, 4)
    assert data.input_shape == (6, 6, 3)


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="0 subfolders and 0 images"):
        load_dataset(f"folder:{tmp_path}", 4, seed=0)


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n cut off"])
def test_damaged_image_is_named(tmp_path: Path, content: bytes) -> None:
    write_images(tmp_path / "cat", 6)
    write_images(tmp_path / "dog", 6)
    (tmp_path / "dog" / "03.png").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match="can be read.*dog/03.png"):
        load_dataset(f"folder:{tmp_path}", 4, seed=0)
