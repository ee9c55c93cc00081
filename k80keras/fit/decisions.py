"""Remembered decisions: small JSON files, one for each kind of training."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
import warnings
from typing import Any

from k80keras import _keras
from k80keras.files import write_text
from k80keras.fit.devices import device_names

_FORMAT = "k80keras-decision-1"
_KINDS: dict[str, tuple[type, ...]] = {
    "steps_per_execution": (int,),
    "jit_compile": (bool, type(None)),
    "overhead_seconds": (float,),
    "step_seconds": (float,),
    "reason": (str,),
}


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a trial decided.

    Attributes:
      steps_per_execution: Int.
      jit_compile: Bool, or `None` if XLA was not tried. Whether it was kept.
      overhead_seconds: Float. Cost of an execution, a in t(K) = a/K + b.
      step_seconds: Float. b in t(K) = a/K + b.
      reason: String. Why, in one sentence.
    """

    steps_per_execution: int
    jit_compile: bool | None
    overhead_seconds: float
    step_seconds: float
    reason: str


def decision_key(graph: Any, batch_shapes: Any, options: dict[str, Any]) -> str:
    """Returns the name under which a decision holds.

    Args:
      graph: Concrete function of the traced step. Its operations and variables
        stand for the model's structure, its loss, metrics and optimizer.
      batch_shapes: Shapes of a batch, or its spec.
      options: Compile options, device and the like; versions are added.
    """
    graph_def = graph.graph.as_graph_def()
    nodes = list(graph_def.node)
    for called in graph_def.library.function:
        nodes.extend(called.node_def)
    parts = {
        "operations": sorted(collections.Counter(n.op for n in nodes).items()),
        "variables": sorted(
            repr((v.dtype.name, v.shape.as_list(), bool(v.trainable)))
            for v in graph.variables
        ),
        "batch": repr(batch_shapes),
        "devices": device_names(),
        **options,
        **_keras.versions(),
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def load_decision(cache_dir: str, key: str) -> Decision | None:
    """Returns the decision saved under `key`; warns about a file it can't use."""
    path = _path(cache_dir, key)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content.get("format") != _FORMAT or content.get("key") != key:
            raise ValueError("it was not written by this version of k80keras")
        decision = Decision(**content["decision"])
        for field, kinds in _KINDS.items():
            if type(getattr(decision, field)) not in kinds:
                raise ValueError(f"{field} has the wrong type")
        if not 1 <= decision.steps_per_execution <= 1024:
            raise ValueError("steps_per_execution is not between 1 and 1024")
        return decision
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"K80Tuner ignores the remembered decision {path}: {error}. "
            "It will be written anew",
            stacklevel=2,
        )
        return None


def save_decision(cache_dir: str, key: str, decision: Decision) -> None:
    """Saves under `key`. The file appears whole, or not at all."""
    content = {
        "format": _FORMAT,
        "key": key,
        "decision": dataclasses.asdict(decision),
    }
    os.makedirs(cache_dir, exist_ok=True)
    write_text(_path(cache_dir, key), json.dumps(content, indent=2) + "\n")


def _path(cache_dir: str, key: str) -> str:
    return os.path.join(cache_dir, f"{key}.json")
