from __future__ import annotations

import numpy as np
import pytest

from k80keras._keras import keras
from k80keras.errors import InvalidArgumentError
from k80keras.training.models import build_model
from k80keras.training.optimizers import make_optimizer


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet20", "MobileNet_V2"])
@pytest.mark.parametrize("shape", [(8, 8, 1), (32, 32, 3)])
def test_models_turn_pixels_into_probabilities(
    name: str, shape: tuple[int, int, int]
) -> None:
    if name == "MobileNet_V2" and shape == (8, 8, 1):
        with pytest.raises(InvalidArgumentError, match="8x8x1.*--image_size"):
            build_model(name, shape, 5)
        return
    model = build_model(name, shape, 5)
    pixels = np.random.default_rng(0).integers(0, 256, (3, *shape)).astype("float32")
    probabilities = model.predict(pixels, verbose=0)
    assert probabilities.shape == (3, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_resnet20_has_the_weights_of_the_paper() -> None:
    model = build_model("resnet20", (32, 32, 3), 10)
    trainable = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    convolutions = [w for w in model.trainable_weights if len(w.shape) == 4]
    assert len(convolutions) == 19  # and one dense layer
    assert trainable == 269_722


def test_preprocessing_is_not_done_twice() -> None:
    def count(model: keras.Model) -> int:
        inner = [layer for layer in model.layers if hasattr(layer, "layers")]
        own = [x for x in model.layers if isinstance(x, keras.layers.Rescaling)]
        return len(own) + sum(count(layer) for layer in inner)

    assert count(build_model("MobileNetV2", (32, 32, 3), 10)) == 1
    assert count(build_model("MobileNetV3Small", (32, 32, 3), 10)) == 1


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("resnet-50", None), ("resnt50", "ResNet50"), ("ml", "mlp")],
)
def test_unknown_model_is_corrected(name: str, suggestion: str | None) -> None:
    if suggestion is None:
        assert build_model(name, (32, 32, 3), 2).output_shape == (None, 2)
        return
    with pytest.raises(InvalidArgumentError, match=f"Did you mean .*{suggestion}"):
        build_model(name, (32, 32, 3), 2)


@pytest.mark.parametrize("name", ["sgd", "RMSprop", "adam", "nadam", "adagrad"])
def test_optimizers_are_found_by_name(name: str) -> None:
    optimizer = make_optimizer(name, 0.25)
    assert type(optimizer).__name__.lower() == name.lower()
    assert float(optimizer.learning_rate) == 0.25


@pytest.mark.parametrize("name", ["Optimizer", "schedules", "LossScaleOptimizer", "x"])
def test_what_is_no_optimizer_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--optimizer must be"):
        make_optimizer(name)
