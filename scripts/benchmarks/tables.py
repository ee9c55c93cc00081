"""Measurements as text."""

from __future__ import annotations

from typing import Any

_TITLES = {
    "plain": "plain fit",
    "tuner": "K80Tuner",
    "oracle": "oracle",
    "keras_auto": "Keras' auto",
    "bare_loop": "bare loop",
}


def format_report(report: dict[str, Any]) -> str:
    """Returns what `benchmark.py fit` prints."""
    machine = report["machine"]
    where = "on a Tesla K80" if machine["ran_on_k80"] else "not on a Tesla K80"
    lines = [
        f"Measured {where}: {machine['cores']} cores of {machine['cpu']}, "
        f"GPUs: {machine['gpus']}.",
        f"Python {machine['python']}, TensorFlow {machine['tensorflow']}, "
        f"Keras {machine['keras']}, batches of {report['batch_size']}.",
    ]
    for name, workload in report["workloads"].items():
        lines += ["", *_workload_lines(name, workload)]
    overhead = report["overhead"]
    lines += [
        "",
        "The tuner's own Python: "
        f"{1e6 * overhead['seconds_one_by_one']:.1f} us a step at K = 1, "
        f"{1e6 * overhead['seconds_tuned']:.1f} us at K = "
        f"{overhead['steps_per_execution']}.",
        f"import k80keras: {1e3 * report['import_seconds']:.1f} ms.",
        "",
        f"{'':44s} {'value':>8s}  target",
    ]
    for target in report["targets"]:
        verdict = "" if target["met"] else "  MISSED"
        lines.append(
            f"{target['name']:44s} {target['value']:8.3f}  {target['target']}{verdict}"
        )
    return "\n".join(lines)


def _workload_lines(name: str, workload: dict[str, Any]) -> list[str]:
    lines = [
        f"{name}, {workload['steps_per_epoch']} steps an epoch",
        f"  {'':12s} {'steps/s':>8s} {'+-':>6s} {'/ plain':>8s} {'+-':>6s} "
        f"{'/ oracle':>8s} {'+-':>6s}  K, XLA",
    ]
    for key, speed in workload["steps_per_second"].items():
        cells = f"  {_TITLES[key]:12s} {speed['median']:8.1f} {speed['spread']:6.1f} "
        for base in ("plain", "oracle"):
            ratio = workload[f"ratios_to_{base}"].get(key)
            cells += (
                f"{'':16s}"
                if ratio is None
                else f"{ratio['median']:8.3f} {ratio['spread']:6.3f} "
            )
        chosen = workload["chosen"].get(key)
        if chosen is not None:
            xla = "yes" if chosen["jit_compile"] else "no"
            cells += f" {chosen['steps_per_execution']}, {xla}"
        lines.append(cells.rstrip())
    lines.append(f"  why: {workload['chosen']['tuner']['reason']}")
    trial = workload["trial"]
    lines.append(
        f"  trial without XLA: {trial['seconds_spent']:.3f} s beyond training, "
        f"{100 * trial['share']:.2f} % of 2,000 steps; first epoch with its tracing: "
        f"{trial['first_epoch_seconds_plain']:.2f} s plain, "
        f"{trial['first_epoch_seconds_tuner']:.2f} s with the tuner"
    )
    for entry in workload["grid"]:
        if "failed" in entry:
            lines.append(f"  XLA does not train it: {entry['failed']}")
    return lines
