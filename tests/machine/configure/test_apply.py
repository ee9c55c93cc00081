"""`configure` in processes of their own, on machines that are made up."""

from __future__ import annotations

import textwrap

from tests.machine.configure.child import ask

SETUP = """
import json, os, sys, warnings
from k80keras.machine.configure.apply import configure
from k80keras.machine.system import *

BOX = System(
    host=Host(cpu_count=8, cpu_limit=2.5),
    nvml=NVMLReading(dies=tuple(
        Die(i, name="Tesla K80", uuid=f"GPU-{i}", compute_capability=(3, 7),
            memory_total_bytes=11441 << 20)
        for i in range(2)
    )),
)
BARE = System(host=Host(cpu_count=8))
before = dict(os.environ)

def same():
    return dict(os.environ) == before

def states(applied):
    return {row.name: row.state for row in applied}

def show(*values):
    print()
    print(json.dumps(values))
"""


def program(code: str) -> str:
    return SETUP + textwrap.dedent(code)


def test_sets_and_restores() -> None:
    code = """
    applied = configure(BOX)
    changed = {k: v for k, v in os.environ.items() if before.get(k) != v}
    rows = {row.name: row.new for row in applied if row.is_variable}
    agree = rows == changed and all(row.old is None for row in applied)
    applied.restore()
    restored = same()
    os.environ["TF_GPU_THREAD_COUNT"] = "7"
    applied.restore()  # has nothing left to do
    show(changed, agree, restored, os.environ["TF_GPU_THREAD_COUNT"],
         "tensorflow" in sys.modules)
    """
    assert ask(program(code)) == [
        {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "TF_GPU_THREAD_MODE": "gpu_private",
            "TF_GPU_THREAD_COUNT": "1",
            "TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "1430",
            "TF_NUM_INTRAOP_THREADS": "3",
            "TF_NUM_INTEROP_THREADS": "3",
        },
        True,
        True,
        "7",
        False,
    ]


def test_prints_nothing_and_reads_well() -> None:
    code = """
    import contextlib, io
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        applied = configure(BOX)
    show(out.getvalue(), str(applied), str(configure(BARE)), len(applied))
    """
    printed, table, nothing, rows = ask(program(code), TF_GPU_THREAD_MODE="global")
    assert printed == ""
    assert nothing == "k80keras.configure: nothing to set on this machine"
    lines = table.splitlines()
    assert "applied   TF_CUDNN_WORKSPACE_LIMIT_IN_MB = 1430" in lines
    assert "pinned    TF_GPU_THREAD_MODE = global" in lines
    assert "note      data layout = -" in lines
    assert rows == 8 and max(map(len, lines)) <= 88


def test_user_variables_stay() -> None:
    code = """
    with configure(BOX) as applied:
        inside = os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]
        pinned = [(row.name, row.state) for row in applied if row.pinned]
        os.environ["TF_GPU_THREAD_COUNT"] = "5"  # the user, in between
    kept = os.environ.pop("TF_GPU_THREAD_COUNT")
    show(inside, pinned, kept, same())
    """
    assert ask(program(code), TF_FORCE_GPU_ALLOW_GROWTH="false") == [
        "false",
        [["TF_FORCE_GPU_ALLOW_GROWTH", "pinned"]],
        "5",
        True,
    ]


def test_an_exception_restores_too() -> None:
    code = """
    try:
        with configure(BOX):
            raise KeyError
    except KeyError:
        show(same())
    """
    assert ask(program(code)) == [True]


def test_a_second_call_goes_back_to_between() -> None:
    code = """
    first = configure(BOX, auto_clustering="fusible")
    between = dict(os.environ)
    second = configure(BOX, gpu_threads=4, cudnn_autotune=False)
    count = os.environ["TF_GPU_THREAD_COUNT"]
    pinned = [row.name for row in second if row.pinned]
    second.restore()
    back = dict(os.environ) == between
    third = configure(BOX, auto_clustering=False)
    flags = os.environ["TF_XLA_FLAGS"]
    third.restore()
    first.restore()
    show(count, pinned, back, flags, same())
    """
    environ = {"TF_XLA_FLAGS": "--tf_xla_min_cluster_size=3"}
    assert ask(program(code), **environ) == [
        "4",
        [],
        True,
        "--tf_xla_min_cluster_size=3 --tf_xla_auto_jit=-1",
        True,
    ]


def test_threads_reach_tensorflow_and_go_back() -> None:
    code = """
    # Where memory is not asked about, TensorFlow is not imported.
    applied = configure(BARE, cpu_threads=23)
    loaded = "tensorflow" in sys.modules
    import tensorflow as tf
    tf.function(lambda x: x @ x)(tf.ones((64, 64)))
    applied.restore()
    show(loaded, len(os.listdir("/proc/self/task")) > 23, same())
    """
    assert ask(program(code)) == [False, True, True]


LATE = """
    import tensorflow as tf
    {touch}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        applied = configure(BOX, deterministic=True)
    texts = [str(w.message) for w in caught if "k80keras" in str(w.message)]
    files = [w.filename for w in caught if "k80keras" in str(w.message)]
    found = states(applied)
    applied.restore()
    show(texts, files, found, same())
"""


def test_in_time_after_the_import() -> None:
    texts, _, found, same = ask(program(LATE.format(touch="")))
    assert (texts, same) == ([], True)
    assert set(found.values()) == {"applied", "note"}


def test_too_late_for_listed_devices() -> None:
    touch = "tf.config.list_physical_devices()"
    texts, files, found, same = ask(program(LATE.format(touch=touch)))
    assert texts == [
        "k80keras: configure() came too late for CUDA_DEVICE_ORDER, "
        "CUDA_VISIBLE_DEVICES. Call k80keras.configure() before anything asks "
        "TensorFlow for its devices (tf.config.list_physical_devices is enough)"
    ]
    assert files == ["<string>"] and same
    late = {name for name, state in found.items() if state == "too late"}
    assert late == {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "applied"


def test_too_late_for_made_devices() -> None:
    (text,), _, found, same = ask(program(LATE.format(touch="tf.ones(3)")))
    for name, state in found.items():
        assert (name in text) == (state in ("too late", "unsure")), name
    assert same
    assert found["TF_GPU_THREAD_MODE"] == "too late"
    assert found["TF_NUM_INTRAOP_THREADS"] == "too late"
    # Read by the first convolution and the first op: nobody can see that.
    assert found["TF_CUDNN_WORKSPACE_LIMIT_IN_MB"] == "unsure"
    assert found["TF_DETERMINISTIC_OPS"] == "unsure"
    assert "and may have come too late for TF_CUDNN_WORKSPACE_LIMIT_IN_MB, " in text


def test_a_warning_turned_error_leaves_nothing_behind() -> None:
    code = """
    import tensorflow as tf
    tf.ones(3)
    warnings.simplefilter("error", UserWarning)
    try:
        configure(BOX)
    except UserWarning as error:
        show(str(error)[:9], same())
    """
    assert ask(program(code)) == ["k80keras:", True]


def test_nothing_is_late_that_need_not_be_set() -> None:
    code = """
    import tensorflow as tf
    tf.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = [states(configure(BARE)), len(configure())]
    show(rows[0], same())
    """
    # Here is no GPU, but there may be a cgroup's limit: nothing is asserted of it.
    assert (
        ask(program(code), TF_NUM_INTRAOP_THREADS="2", TF_NUM_INTEROP_THREADS="2")[0]
        == {}
    )


def test_memory_limit_without_a_gpu_in_tensorflow() -> None:
    code = """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        applied = configure(BOX, memory_limit_bytes=1 << 30)
    told = [str(w.message) for w in caught if "k80keras" in str(w.message)]
    found = states(applied)["memory limit"]
    applied.restore()
    show(told, found, "tensorflow" in sys.modules, same())
    """
    assert ask(program(code), CUDA_VISIBLE_DEVICES="-1") == [
        [],
        "note",
        False,
        True,
    ]
    told, found, loaded, same = ask(program(code))
    assert "configure() failed at memory limit: TensorFlow sees no GPU" in told[0]
    assert (found, loaded, same) == ("failed", True, True)


def test_hiding_all_works_until_the_devices_are_made() -> None:
    code = """
    import tensorflow as tf
    def config():
        devices = tf.config.list_physical_devices()
        logical = map(tf.config.get_logical_device_configuration, devices)
        return devices, tf.config.get_visible_devices(), list(logical)
    was = config()
    applied = configure(BOX, visible_devices=False)
    found = states(applied)["CUDA_VISIBLE_DEVICES"]
    applied.restore()
    show(found, config() == was, same())
    """
    assert ask(program(code)) == ["applied", True, True]
