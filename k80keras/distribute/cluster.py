"""Which of several workers this process is, as `TF_CONFIG` or Slurm say it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any, Mapping

from k80keras.errors import InvalidArgumentError

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Worker:
    """One process of those that train together.

    Attributes:
      index: Int, its place among all.
      count: Int, how many there are.
      source: String, who says so: `"TF_CONFIG"` or `"Slurm"`.
    """

    index: int
    count: int
    source: str

    @property
    def is_chief(self) -> bool:
        """Whether it is the one that writes what all of them learn."""
        return self.index == 0

    def __str__(self) -> str:
        return f"worker {self.index} of {self.count} ({self.source})"


def this_worker(environ: Mapping[str, str]) -> Worker:
    """Returns which worker this process is; loads no TensorFlow.

    Args:
      environ: Mapping, the environment. `TF_CONFIG` goes before Slurm.

    Raises:
      InvalidArgumentError: If neither says it, or `TF_CONFIG` is wrong.
    """
    told = environ.get("TF_CONFIG", "").strip()
    if told:
        return _from_tf_config(told)
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
    if all(environ.get(name) for name in names):
        return Worker(int(environ[names[0]]), int(environ[names[1]]), "Slurm")
    raise InvalidArgumentError(
        "Training with several workers needs to know the others. Received: neither "
        "TF_CONFIG nor a step of Slurm. On one machine start the command by "
        '`k80keras launch --workers localhost:2222,localhost:2223 "COMMAND"`; on '
        "several, by `srun`, or with a TF_CONFIG on each"
    )


def _from_tf_config(told: str) -> Worker:
    try:
        config: Any = json.loads(told)
        cluster = {str(job): list(tasks) for job, tasks in config["cluster"].items()}
        job, index = str(config["task"]["type"]), int(config["task"]["index"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _wrong(f"it must look like {_EXAMPLE}", told) from None
    others = sorted(set(cluster) - {"chief", "worker"})
    if others:
        raise _wrong(f"it must name workers, and no {others[0]}", told)
    # As TensorFlow counts them.
    tasks = [*cluster.get("chief", []), *cluster.get("worker", [])]
    own = cluster.get(job, [])
    if not 0 <= index < len(own):
        raise _wrong("its task must be one of its cluster", told)
    for address, times in Counter(map(str, tasks)).items():
        port = address.rpartition(":")[2]
        if times > 1 or ":" not in address or not port.isdecimal():
            raise _wrong("each worker must have a HOST:PORT of its own", address)
    place = index + (len(cluster.get("chief", [])) if job == "worker" else 0)
    return Worker(place, len(tasks), "TF_CONFIG")


def _wrong(rule: str, received: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"TF_CONFIG: {rule}. Received: {received}")
