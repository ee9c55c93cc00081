from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.training.checkpoint import latest_checkpoint, save_checkpoint
from k80keras.training.output import claimed


def save_model(path: str) -> None:
    Path(path).write_bytes(b"a model")


def save(folder: Path, epochs: int) -> None:
    history = [{"loss": 1.0 / (epoch + 3)} for epoch in range(epochs)]
    save_checkpoint(folder, save_model, {"seed": 1}, history)


def test_only_the_newest_checkpoint_stays(tmp_path: Path) -> None:
    for epochs in (1, 2, 3):
        save(tmp_path, epochs)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0003"]
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.epochs == 3
    assert found.history == ({"loss": 1 / 3}, {"loss": 1 / 4}, {"loss": 1 / 5})
    assert found.model_path.read_bytes() == b"a model"


def test_epochs_are_compared_as_numbers(tmp_path: Path) -> None:
    save(tmp_path, 10_000)
    (tmp_path / "epoch-9999").mkdir()
    found = latest_checkpoint(tmp_path)
    assert found is not None and found.epochs == 10_000


def test_a_save_that_fails_leaves_the_last_epoch(tmp_path: Path) -> None:
    save(tmp_path, 1)

    def fail(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        save_checkpoint(tmp_path, fail, {}, [{"loss": 1.0}, {"loss": 0.5}])
    found = latest_checkpoint(tmp_path)
    assert found is not None and found.epochs == 1
    save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0002"]


def test_damage_by_others_is_named(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "epoch-0001" / "state.json").write_text("{")
    with pytest.raises(InvalidArgumentError, match="epoch-0001.*Delete that folder"):
        latest_checkpoint(tmp_path)


def test_no_checkpoint_is_an_ordinary_value(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    with claimed(tmp_path, resume=True):
        with pytest.raises(InvalidArgumentError, match="one run at a time"):
            with claimed(tmp_path, resume=True):
                pass
    with claimed(tmp_path, resume=True):
        pass


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match="can be written.*file"):
        with claimed(tmp_path / place, resume=False):
            pass


def test_an_unused_folder_disappears(tmp_path: Path) -> None:
    error: Any = InvalidArgumentError("a later check failed")
    with pytest.raises(InvalidArgumentError, match="later"):
        with claimed(tmp_path / "new", resume=False):
            raise error
    assert not (tmp_path / "new").exists()


def test_leftovers_do_not_count_as_a_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".tmp-epoch-0001").mkdir(parents=True)
    (tmp_path / ".tmp-history.csv-abc").touch()
    with claimed(tmp_path, resume=False):
        assert not (tmp_path / ".tmp-history.csv-abc").exists()
