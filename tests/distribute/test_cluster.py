from __future__ import annotations

import json

import pytest

from k80keras.distribute.cluster import Worker, this_worker
from k80keras.errors import InvalidArgumentError


def tf_config(cluster, job="worker", index=0):
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": cluster, "task": {"type": job, "index": index}}
        )
    }


WORKERS = {"worker": ["a:1", "b:1", "[::1]:2"]}


def test_tf_config_says_it():
    found = this_worker(tf_config(WORKERS, index=2))
    assert found == Worker(2, 3, "TF_CONFIG")
    assert not found.is_chief
    assert this_worker(tf_config(WORKERS)).is_chief


def test_a_chief_goes_before_workers():
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert this_worker(tf_config(cluster, "chief")) == Worker(0, 3, "TF_CONFIG")
    assert this_worker(tf_config(cluster)) == Worker(1, 3, "TF_CONFIG")


def test_slurm_says_it_where_tf_config_does_not():
    slurm = {
        "SLURM_PROCID": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "node[1-2]",
    }
    assert this_worker(slurm) == Worker(1, 2, "Slurm")
    assert this_worker({**slurm, "TF_CONFIG": " "}).source == "Slurm"
    assert this_worker({**slurm, **tf_config(WORKERS)}).source == "TF_CONFIG"


@pytest.mark.parametrize("environ", [{}, {"SLURM_PROCID": "0"}], ids=str)
def test_nobody_says_it(environ):
    with pytest.raises(InvalidArgumentError, match="neither TF_CONFIG nor a step"):
        this_worker(environ)


@pytest.mark.parametrize(
    "environ, rule",
    [
        ({"TF_CONFIG": "{"}, "must look like"),
        ({"TF_CONFIG": "[]"}, "must look like"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "must look like"),
        (tf_config(WORKERS, index=3), "its task must be one of its cluster"),
        (tf_config(WORKERS, index=-1), "its task must be one of its cluster"),
        (tf_config(WORKERS, "chief"), "its task must be one of its cluster"),
        (tf_config({**WORKERS, "ps": ["c:1"]}), "no ps"),
        (tf_config({"worker": ["a:1", "a:1"]}), "HOST:PORT of its own.*: a:1"),
        (tf_config({"worker": ["a"]}), "HOST:PORT of its own. Received: a"),
        (tf_config({"worker": ["a:b"]}), "HOST:PORT of its own. Received: a:b"),
    ],
)
def test_a_wrong_tf_config(environ, rule):
    with pytest.raises(InvalidArgumentError, match=rule):
        this_worker(environ)
