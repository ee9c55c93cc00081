"""A folder of images, one subfolder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from k80keras._keras import tf
from k80keras.errors import InvalidArgumentError
from k80keras.training.source import DEFAULT_IMAGE_SIZE, Source, resize

_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")
_CHANNELS = 3
# One image in so many is kept for validation.
_VALIDATION_SHARE = 5
# So many images are measured to find the size that they share.
_MEASURED = 32

_Files = list[tuple[str, int]]


def read_folder(path: str, image_size: int | None) -> Source:
    """Returns the images below `path`.

    If `path` holds the folders `train` and `validation` (or `val`, or `test`),
    each with a folder for each class, they are the two splits. Otherwise `path`
    holds the folders of the classes, and every fifth image of each class, in the
    order of names, is kept for validation.

    Args:
      path: String. JPEG, PNG, GIF and BMP files are read, as RGB.
      image_size: Int or `None`. Defaults to the size that the first images
        share, else 224.

    Raises:
      InvalidArgumentError: If there are no two classes or not enough images, or
        if a file is no image. Files that are damaged further inside show up in
        training; `find_damage` then names them.
    """
    root = Path(path).expanduser()
    train, validation, num_classes = _split(root)
    files = train + validation
    _require_signatures([name for name, _ in files])
    shape = _find_shape([name for name, _ in train], image_size)

    def decode(name: Any, label: Any) -> tuple[Any, Any]:
        return resize(_decode(name), shape), label

    def find_damage() -> str | None:
        return _describe([name for name, _ in files if not _is_readable(name)])

    return Source(
        train=_to_dataset(train),
        validation=_to_dataset(validation),
        train_examples=len(train),
        validation_examples=len(validation),
        decode=decode,
        image_shape=shape,
        num_classes=num_classes,
        find_damage=find_damage,
    )


def _split(root: Path) -> tuple[_Files, _Files, int]:
    folders = _subfolders(root)
    held_out = next((n for n in ("validation", "val", "test") if n in folders), None)
    if "train" in folders and held_out is not None:
        classes = list(_subfolders(root / "train"))
        others = list(_subfolders(root / held_out))
        if classes != others:
            raise InvalidArgumentError(
                f"folder:{root}: train and {held_out} must have the same classes. "
                f"Received: {', '.join(classes)} and {', '.join(others)}"
            )
        train = [f for files in _files_by_class(root / "train") for f in files]
        validation = [f for files in _files_by_class(root / held_out) for f in files]
    else:
        classes = list(folders)
        train, validation = [], []
        for files in _files_by_class(root):
            for index, file in enumerate(files):
                last = index % _VALIDATION_SHARE == _VALIDATION_SHARE - 1
                (validation if last else train).append(file)
    if len(classes) < 2 or not train or not validation:
        raise InvalidArgumentError(
            "folder:PATH must hold a subfolder of images for each of at least two "
            f"classes, with at least {_VALIDATION_SHARE} images in one of them "
            f"({', '.join(_SUFFIXES)}). Received: {root} with "
            f"{len(classes)} subfolders and {len(train) + len(validation)} images"
        )
    return train, validation, len(classes)


def _subfolders(folder: Path) -> dict[str, Path]:
    found = sorted(p for p in folder.iterdir() if p.is_dir())
    return {p.name: p for p in found if not p.name.startswith(".")}


def _files_by_class(root: Path) -> list[_Files]:
    by_class = []
    for label, folder in enumerate(_subfolders(root).values()):
        names = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
        by_class.append([(str(name), label) for name in names])
    return by_class


def _require_signatures(names: list[str]) -> None:
    """Checks what costs little: that each file begins as an image does."""
    wrong = []
    for name in names:
        with open(name, "rb") as file:
            if not file.read(8).startswith(_SIGNATURES):
                wrong.append(name)
    message = _describe(wrong)
    if message is not None:
        raise InvalidArgumentError(message)


def _find_shape(names: list[str], image_size: int | None) -> tuple[int, int, int]:
    height = width = image_size or DEFAULT_IMAGE_SIZE
    if image_size is None:
        step = max(1, len(names) // _MEASURED)
        sample = [name for name in names[::step] if _is_readable(name)]
        sizes = {tuple(_decode(name).shape[:2]) for name in sample}
        if len(sizes) == 1:
            height, width = sizes.pop()
    return height, width, _CHANNELS


def _to_dataset(files: _Files) -> Any:
    names = tf.constant([name for name, _ in files])
    labels = tf.constant([label for _, label in files], tf.int64)
    return tf.data.Dataset.from_tensor_slices((names, labels))


def _decode(name: Any) -> Any:
    image = tf.io.decode_image(
        tf.io.read_file(name), channels=_CHANNELS, expand_animations=False
    )
    return tf.ensure_shape(image, (None, None, _CHANNELS))


def _is_readable(name: str) -> bool:
    try:
        _decode(name)
    except tf.errors.OpError:
        return False
    return True


def _describe(names: list[str]) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        "folder:PATH must hold images that can be read. Received: "
        f"{', '.join(names[:3])}{more}. Delete or replace them"
    )
