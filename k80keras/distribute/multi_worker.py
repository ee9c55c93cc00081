"""`multi_worker_strategy`: the GPUs of several processes, or machines, as one."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from absl import logging

from k80keras._keras import KERAS_3, tf, versions
from k80keras.distribute.cluster import this_worker
from k80keras.errors import InvalidArgumentError

# More tasks than any machine runs.
_MOST_TASKS = 4096


def multi_worker_strategy() -> Any:
    """Returns a strategy for all workers that `TF_CONFIG` or Slurm name.

    Every worker runs the same program and waits here until all are there. Each
    has its share of every batch, on all GPUs that it sees. Call it first of all,
    before TensorFlow makes a tensor; save on all workers, as all must be asked
    for some weights; let `keras.callbacks.BackupAndRestore` keep what is learnt,
    in a folder that all of them reach, and start all again when one dies:
    `k80keras launch --workers` does so.

    Under Slurm (`srun python train.py`) the cluster is resolved by TensorFlow's
    `SlurmClusterResolver` and written to `TF_CONFIG`. Where Slurm has not dealt
    out a machine's GPUs, its tasks share them evenly.

    It needs Keras 2 (the K80 lane, or `tf_keras` with `TF_USE_LEGACY_KERAS=1`):
    Keras 3's `fit` fails under this strategy.

    Returns:
      `tf.distribute.MultiWorkerMirroredStrategy`.

    Raises:
      InvalidArgumentError: If nothing names the workers, or wrongly; if Keras 3 is
        in use; or if TensorFlow has been used before.
    """
    worker = this_worker(os.environ)
    if KERAS_3:
        raise InvalidArgumentError(
            "multi_worker_strategy needs Keras 2: the fit of Keras 3 fails under "
            f"several workers. Received: Keras {versions()['keras']}. Install "
            'tf_keras and set TF_USE_LEGACY_KERAS=1, or use "k80keras[k80]"'
        )
    if worker.source == "Slurm":
        os.environ["TF_CONFIG"] = _resolve_slurm(os.environ)
        _share_gpus(os.environ)
    logging.info("k80keras: %s waits for the others", worker)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise InvalidArgumentError(
            "multi_worker_strategy must be called before TensorFlow is used. "
            "Received: a process in which it was. Call it first, before tensors, "
            "datasets and models are made"
        ) from error


def _resolve_slurm(environ: Mapping[str, str]) -> str:
    """Returns the `TF_CONFIG` of a task that `srun` started."""
    # It would deal out GPUs by their number, over what CUDA_VISIBLE_DEVICES says,
    # and no tasks where there is none; so it is told of more than enough.
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=_MOST_TASKS, gpus_per_task=1, auto_set_gpu=False
    )
    cluster = resolver.cluster_spec().as_dict()
    job, index = resolver.get_task_info()
    host = cluster[job][index].rpartition(":")[0]
    here = environ.get("SLURMD_NODENAME", host)
    if here != host:
        # It sorts hosts as text, Slurm does not: node10 goes before node9.
        raise InvalidArgumentError(
            "Slurm must number its tasks in the order of their hosts' names, as "
            f"TensorFlow's resolver does. Received: task {index} on {here}, where "
            f"{host} was expected. Set TF_CONFIG yourself"
        )
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def _share_gpus(environ: Mapping[str, str]) -> None:
    config = json.loads(environ["TF_CONFIG"])
    addresses = config["cluster"][config["task"]["type"]]
    hosts = [address.rpartition(":")[0] for address in addresses]
    own = config["task"]["index"]
    tasks = hosts.count(hosts[own])
    place = hosts[:own].count(hosts[own])
    gpus = tf.config.get_visible_devices("GPU")
    dealt_out = any(
        environ.get(name) for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK")
    )
    share = len(gpus) // tasks
    if tasks > 1 and share and not dealt_out:
        tf.config.set_visible_devices(gpus[place * share : (place + 1) * share], "GPU")
