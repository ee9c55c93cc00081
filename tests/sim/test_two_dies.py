"""Two dies and more: what is chosen, tested and compiled on a simulated box."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.sim.box import Box
from tests.sim.scenario import load

UUIDS = [die["uuid"] for board in load()["boards"] for die in board["dies"]]
CHOOSE = """
import json
from k80keras.distribute.devices import choose_devices

choice = choose_devices()
print()
print(json.dumps([choice.devices, choice.reason, choice.uuids]))
"""
BUSY = {"boards.0.dies.1.processes": [{"pid": 1, "memory": 10**9}]}


@pytest.mark.parametrize(
    "changes, visible, devices, reason, dies",
    [
        ({}, None, [0, 1, 2, 3], "2 idle boards of Tesla K80", [0, 1, 2, 3]),
        (BUSY, None, [2, 3], "1 idle board of Tesla K80", [2, 3]),
        # As the user has ordered them; the last die's neighbour is hidden.
        ({}, [3, 1, 0], [1, 2], "1 idle board of Tesla K80", [1, 0]),
    ],
    ids=["all", "one busy", "some hidden"],
)
def test_choice(gpu_box: Box, changes, visible, devices, reason, dies) -> None:
    environ = {}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(UUIDS[place] for place in visible)

    told = gpu_box.ask(CHOOSE, gpu_box.scenario(**changes), **environ)

    assert told == [[f"GPU:{n}" for n in devices], reason, [UUIDS[n] for n in dies]]


def test_self_test_sees_that_nothing_is_computed(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    import json, warnings
    from k80keras import doctor
    from k80keras.distribute.mirrored import mirrored_strategy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        strategy = mirrored_strategy()
    (finding,) = [f for f in doctor().findings if f.check == "self_test"]
    print()
    print(json.dumps([
        strategy.num_replicas_in_sync,
        [str(w.message) for w in caught if "k80keras" in str(w.message)],
        [finding.state, finding.why],
    ]))
    """
    environ = {
        "XDG_CACHE_HOME": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": ",".join(UUIDS[:2]),
    }
    replicas, (said,), (state, why) = gpu_box.ask(code, **environ)

    # The box moves memory as a card does, and adds up nothing.
    assert replicas == 1
    assert "collective: a sum over 2 replicas is wrong on GPU:0" in said
    assert "arrived damaged" not in said and said.endswith("So one die is used")
    assert state == "warning" and "a sum over 2 replicas is wrong" in why
    text = (tmp_path / "k80keras" / "self_test.json").read_text()
    assert [len(verdict["trials"]) for verdict in json.loads(text)] == [3]
    assert not any(uuid in text for uuid in UUIDS)


def test_nothing_is_compiled_by_two_dies_at_once(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    import os
    import numpy as np
    from k80keras._keras import keras, tf
    from k80keras.distribute.mirrored import mirrored_strategy

    def loaded():
        with open(os.environ["K80SIM_LOG"]) as log:
            return log.read().count("cubin sm_37")

    strategy = mirrored_strategy(["GPU:0", "GPU:1"], self_test=False)
    before = loaded()
    tf.config.run_functions_eagerly(True)
    with tf.device("GPU:0"):
        keras.losses.huber(tf.ones([4, 4]), keras.activations.softplus(tf.ones([4, 4])))
        tf.nn.relu(tf.sqrt(tf.exp(tf.square(tf.ones(3)) - 1.0)))
    alone = loaded()
    tf.config.run_functions_eagerly(False)
    layer = keras.layers.Dense
    with strategy.scope():
        model = keras.Sequential([layer(8, "relu", input_shape=(8,)), layer(1)])
        model.compile(keras.optimizers.Adam(jit_compile=False), "mse")
    model.fit(np.ones((64, 8), "f"), np.ones((64, 1), "f"), batch_size=16, verbose=0)
    print()
    print([strategy.num_replicas_in_sync, before, alone - before])
    """
    log = tmp_path / "calls.log"
    replicas, compiled, more = gpu_box.ask(code, K80SIM_LOG=str(log))

    assert replicas == 2
    assert compiled >= 50  # one kernel for each op that is named, at least
    assert more == 0  # what a user needs next on that die is there
    assert re.search("ncclKernel|cuLaunchKernel", log.read_text())
