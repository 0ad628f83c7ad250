"""TensorFlow's part in bench_graph: graphs of `no_op`, and a `tf.function` of small additions.

It has two threads for ops, and one within an op. Its optimiser is off, so that it runs the graph as
written. Raises ImportError if TensorFlow is not installed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

NAME = "TensorFlow"
NO_OPS = "TensorFlow, no_op"
FUNCTION = "tf.function"


class TensorFlow:
    """The calls that bench_graph makes."""

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
        import tensorflow

        tensorflow.config.threading.set_inter_op_parallelism_threads(2)
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        tensorflow.config.set_visible_devices([], "GPU")
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        self._tensorflow: Any = tensorflow

    def no_ops(self, workload: Workload) -> Callable[[], object]:
        """A call that runs a graph with a `no_op` for each op of the workload."""
        from tensorflow.core.protobuf import rewriter_config_pb2

        v1 = self._tensorflow.compat.v1
        graph = self._tensorflow.Graph()
        with graph.as_default():
            made: list[Any] = []
            for before in workload.predecessors:
                with graph.control_dependencies([made[each] for each in before]):
                    made.append(v1.no_op())
            last = [
                each for each, after in zip(made, workload.successors, strict=True) if not after
            ]
            with graph.control_dependencies(last):
                end = v1.no_op("end")
        config = v1.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
        options = config.graph_options
        options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        options.rewrite_options.CopyFrom(
            rewriter_config_pb2.RewriterConfig(disable_meta_optimizer=True)
        )
        return v1.Session(graph=graph, config=config).make_callable(end)

    def adds(self, values: np.ndarray, count: int) -> Callable[[], np.ndarray]:
        """A call of a `tf.function` with `count` additions, which returns the values."""
        tensorflow = self._tensorflow

        @tensorflow.function
        def adding(x: Any, y: Any) -> Any:
            for _ in range(count):
                x = x + y
            return x

        x, y = tensorflow.constant(values), tensorflow.ones_like(values)
        return lambda: adding(x, y).numpy()


def peer(session: Session) -> TensorFlow | None:
    """TensorFlow if it is installed; otherwise the table names the reason."""
    if NAME in session.absent:
        return None
    try:
        found = TensorFlow()
    except ImportError as error:
        session.absent[NAME] = f"{type(error).__name__}: {error}".splitlines()[0]
        return None
    found_as = machine.installed("tensorflow") or machine.installed("tensorflow-cpu")
    session.versions[NAME] = found_as or "of unknown version"
    return found
