"""The smoke test in the simulated box, where kernels do nothing."""

from __future__ import annotations

from k80keras.machine.smoke.run import run_smoke
from tests.sim.box import Box


def test_values_that_nobody_computed_are_wrong(gpu_box: Box) -> None:
    report = run_smoke(operations=["matmul"], environ=gpu_box.environ())
    dies = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
    assert report.devices == dies
    assert [(r.device, r.library, r.state) for r in report.results] == [
        ("host", "TensorFlow", "ok"),
        ("host", "TensorFlow", "ok"),
        *((die, "cuBLAS", "wrong") for die in dies),
    ]
    assert report.results[1].message.startswith("GPU:0 Tesla K80, GPU:1 Tesla K80")
    assert "gave wrong values: the product: off by up to" in report.failures[0].message
