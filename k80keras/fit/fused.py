"""Many training steps in one call into TensorFlow, bit for bit the same.

There is one traced function for every number of steps, with one copy of the
step in its loop, so that kernels with a state of their own (Keras 2's dropout)
go on where they were. Each batch is pulled as an optional: where the data ends,
the loop ends, and nothing is lost or run twice.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

from k80keras import _keras
from k80keras._keras import tf

_NEXT_BATCH = "k80keras_next_batch"  # tells errors of the data from a step's


class FusedFunction:
    """Runs Keras' own step several times in one execution.

    Args:
      step: `tf.function` from one batch to a structure of logs.
      plain_was_used: Function that returns whether Keras' own function has run
        this step already.
    """

    def __init__(
        self,
        step: Callable[[Any], Any],
        plain_was_used: Callable[[], bool] = lambda: False,
    ) -> None:
        self.step = step
        self.memory: dict[str, Any] = {}  # findings, for the next `fit`
        self._run = tf.function(
            tf.autograph.experimental.do_not_convert(self._loop), reduce_retracing=True
        )
        self._beyond = tf.function(
            tf.autograph.experimental.do_not_convert(
                lambda it: self._step(next(it), it.element_spec)
            ),
            reduce_retracing=True,
        )
        self._counts: dict[int, Any] = {}
        self._graphs: dict[str, Any] = {}
        self._within = tf.constant(False)
        self._plain_was_used = plain_was_used
        self._has_run = False

    @staticmethod
    def accepts(iterator: Any) -> bool:
        """Returns whether the loop can pull batches from `iterator`."""
        kinds = (tf.data.Iterator, tf.distribute.DistributedIterator)
        return isinstance(iterator, kinds)

    def was_used(self) -> bool:
        """Returns whether the step has run, here or in Keras' own function."""
        return self._has_run or self._plain_was_used()

    def goes_on(self, iterator: Any) -> bool:
        """Returns whether random kernels go on where the last step left them."""
        if self._has_run or not self.was_used():
            return True
        return not self.holds_random_state(iterator.element_spec)

    def prepare(self, iterator: Any) -> None:
        """Traces for this kind of iterator; consumes nothing.

        Raises:
          Exception: Whatever tracing raises; no batch is gone by then.
        """
        self._run.get_concrete_function(iterator, self._count(1), self._within)

    def __call__(self, iterator: Any, steps: int) -> tuple[int, Any, float]:
        """Runs up to `steps` steps.

        Returns:
          The number of steps done (fewer where the data ended), the logs of
          the last one, and the seconds spent waiting for batches.

        Raises:
          OpError: Whatever a step raises, or the data.
        """
        self._has_run = True
        try:
            done, logs, wait = self._run(iterator, self._count(steps), self._within)
        except tf.errors.OpError as error:
            if f"{_NEXT_BATCH}/" in error.message:
                self.fail(iterator)
            raise
        return int(done), logs, float(wait)

    def fail(self, iterator: Any) -> None:
        """Does what plain `fit` does before it finds an error in its data."""
        step_without_data(self.end, iterator)

    def end(self, iterator: Any) -> None:
        """Steps beyond the end of the data, as plain `fit` does.

        Where the length is not known, plain `fit` finds the end by a step that
        fails. By then it has done what needs no data: `optimizer.iterations`
        has counted it, seeds have moved on, and kernels have drawn masks whose
        shape is fixed. So must they here.

        Raises:
          OutOfRangeError: Always; Keras takes it for the end of the data.
        """
        spec = iterator.element_spec
        if isinstance(iterator, tf.data.Iterator) and self.holds_random_state(spec):
            # Only the loop's own kernels can draw the masks that come next.
            self._run(iterator, self._count(1), tf.constant(True))
        # How much of the step has run when it fails is a race, above all between
        # devices: so the graph must be that of plain `fit`.
        self._beyond(iterator)

    @contextlib.contextmanager
    def scratch(self, spec: Any) -> Iterator[None]:
        """Puts back every variable that the step reads or writes."""
        variables = self.graph_of(spec).variables
        before = [tf.identity(variable) for variable in variables]
        try:
            yield
        finally:
            for variable, value in zip(variables, before):
                variable.assign(value)

    def graph_of(self, data_spec: Any) -> Any:
        """Returns the traced step for batches of this spec.

        TensorFlow would trace another one wherever a strategy has changed the
        device, or has lost a static shape.
        """
        key = repr(data_spec)
        if key not in self._graphs:
            trace = self.step.get_concrete_function  # type: ignore[attr-defined]
            self._graphs[key] = trace(data_spec)
        return self._graphs[key]

    def _step(self, batch: Any, data_spec: Any) -> Any:
        pairs = zip(
            tf.nest.flatten(batch, expand_composites=True),
            tf.nest.flatten(data_spec, expand_composites=True),
        )
        for tensor, spec in pairs:
            tensor.set_shape(spec.shape)
        return self.graph_of(data_spec)(batch)

    def holds_random_state(self, spec: Any) -> bool:
        """Returns whether kernels of the step hold a random state of their own."""
        graph_def = self.graph_of(spec).graph.as_graph_def(add_shapes=False)
        nodes = list(graph_def.node)
        for called in graph_def.library.function:
            nodes.extend(called.node_def)
        return any("seed" in node.attr and "seed2" in node.attr for node in nodes)

    def _count(self, steps: int) -> Any:
        if steps not in self._counts:
            self._counts[steps] = tf.constant(steps, tf.int32)
        return self._counts[steps]

    def _loop(self, iterator: Any, steps: Any, beyond: Any) -> Any:
        spec = iterator.element_spec
        with _captures_looked_up(self.graph_of(spec)):
            return self._loop_over(iterator, spec, steps, beyond)

    def _loop_over(self, iterator: Any, spec: Any, steps: Any, beyond: Any) -> Any:
        outputs = self.graph_of(spec).structured_outputs
        parts = tf.nest.flatten(outputs, expand_composites=True)
        logs = [tf.zeros([d or 0 for d in t.shape or []], t.dtype) for t in parts]
        shapes = [t.shape for t in parts]
        scalar = tf.TensorShape([])

        def body(done: Any, more: Any, logs: Any, wait: Any) -> Any:
            # The control dependencies keep the order of plain `fit`: a batch is
            # asked for when the step before it is finished. So an error in the
            # data leaves all earlier steps whole, and the wait is a true one.
            with tf.control_dependencies(logs):
                asked = _now()
            with tf.control_dependencies([asked]), tf.name_scope(_NEXT_BATCH):
                batch = iterator.get_next_as_optional()
                more = batch.has_value()
            with tf.control_dependencies([more]):
                wait += _now() - asked
            logs = tf.cond(
                tf.logical_or(more, beyond),
                lambda: tf.nest.flatten(
                    self._step(tf.cond(more, batch.get_value, iterator.get_next), spec),
                    expand_composites=True,
                ),
                lambda: logs,
            )
            return done + tf.cast(more, tf.int32), more, logs, wait

        done, _, logs, wait = tf.while_loop(
            lambda done, more, logs, wait: tf.logical_and(done < steps, more),
            body,
            (tf.constant(0), tf.constant(True), logs, tf.constant(0.0, tf.float64)),
            shape_invariants=(scalar, scalar, shapes, scalar),
        )
        logs = tf.nest.pack_sequence_as(outputs, logs, expand_composites=True)
        return done, logs, wait


def _now() -> Any:
    with tf.device("/CPU:0"):
        return tf.timestamp()


@contextlib.contextmanager
def _captures_looked_up(function: Any) -> Iterator[None]:
    """Lets calls inside of control flow take captures from outside of it.

    Collectives, as `MirroredStrategy` uses by default, get their keys at each
    call of a function. TensorFlow cannot feed them to a call in a loop; in a loop
    of its own it looks them up once for all rounds, as is done here.
    """
    graph = function.graph
    deferred = graph.external_captures + graph.deferred_external_captures
    function.set_external_captures(function.captured_inputs)
    try:
        yield
    finally:
        function.set_external_captures(deferred)


def step_without_data(step: Callable[[Any], Any], iterator: Any) -> None:
    """Lets `step` do what needs no batch, such as counting, and fail."""
    with contextlib.suppress(Exception):  # the user is told that of the data
        spec = tf.nest.map_structure(
            lambda part: getattr(part, "_value_specs", (part,))[0],  # of one replica
            iterator.element_spec,
        )
        empty = batches = tf.data.Dataset.from_generator(list, output_signature=spec)
        if not isinstance(iterator, tf.data.Iterator):
            strategy = tf.distribute.get_strategy()
            batches = strategy.distribute_datasets_from_function(lambda _: empty)
        step(iter(batches))


def can_replay(iterator: Any) -> bool:
    """Returns whether `replay` can give batches of this iterator back.

    Ragged and sparse batches have a spec that no other dataset can be given; a
    strategy's iterator is of a kind of its own.
    """
    parts = tf.nest.flatten(iterator.element_spec)
    plain = isinstance(iterator, tf.data.Iterator)
    return plain and all(isinstance(part, tf.TensorSpec) for part in parts)


def replay(batch: Any, element_spec: Any, count: int = 1) -> Any:
    """Returns an iterator that yields a batch that was pulled before.

    Its element spec is that of the iterator it was pulled from (`can_replay`
    says whether that is possible), so functions traced for that one run it
    without another trace.
    """

    def loosen(*parts: Any) -> Any:
        element = parts if isinstance(element_spec, tuple) else parts[0]
        pairs = zip(tf.nest.flatten(element), tf.nest.flatten(element_spec))
        # Only a placeholder forgets the static shape of its input.
        forget = tf.compat.v1.placeholder_with_default
        flat = [forget(tensor, spec.shape) for tensor, spec in pairs]
        return tf.nest.pack_sequence_as(element_spec, flat)

    return iter(tf.data.Dataset.from_tensors(batch).map(loosen).repeat(count))


def fused_with(train_function: Any) -> FusedFunction | None:
    """Returns the fused function that was made of this function before."""
    return getattr(train_function, "_k80keras_fused", None)


def fuse(train_function: Any) -> FusedFunction:
    """Returns the fused function of Keras' train (or test) function.

    It is kept with that function, hence with the compiled model: a second
    `fit` goes on with the same kernels, `compile` starts anew.
    """
    fused = fused_with(train_function)
    if fused is None:
        fused = FusedFunction(
            _keras.step_of(train_function), lambda: _keras.was_traced(train_function)
        )
        train_function._k80keras_fused = fused
    return fused
