"""Host time of graphs: launches and instantiation by nodes, and changes of an executable graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from bench.driver.baseline import checked
from bench.hardware.figure_rig import Found, Rig, per_call

NODES = (1, 8, 32, 64)
CHAIN, BESIDE = "chain", "side by side"


@dataclass
class Built:
    """A graph of kernel nodes, and the parameters that the driver reads when it is called."""

    graph: Any
    nodes: list[Any]
    kept: list[Any]


def built(rig: Rig, count: int, shape: str, parameters: Callable[[int], Any]) -> Built:
    """A graph of `count` kernel nodes, in a chain or without edges."""
    graph = checked(driver.cuGraphCreate(0))
    rig.closing.callback(driver.cuGraphDestroy, graph)
    made = Built(graph, [], [])
    for number in range(count):
        what = parameters(number)
        before = made.nodes[-1:] if shape == CHAIN else []
        made.kept.append(what)
        made.nodes.append(checked(driver.cuGraphAddKernelNode(graph, before, len(before), what)))
    return made


def node_parameters(function: Any, arguments: tuple) -> driver.CUDA_KERNEL_NODE_PARAMS:
    made = driver.CUDA_KERNEL_NODE_PARAMS()
    made.func = function
    made.gridDimX = made.gridDimY = made.gridDimZ = 1
    made.blockDimX = made.blockDimY = made.blockDimZ = 1
    made.sharedMemBytes = 0
    made.kernelParams = arguments
    made.extra = 0
    return made


def touching(rig: Rig, count: int = 3) -> Any:
    return node_parameters(rig.touch, rig.touch_arguments(count))


def instantiated(rig: Rig, graph: Any) -> Any:
    made = checked(driver.cuGraphInstantiate(graph, 0))
    rig.closing.callback(driver.cuGraphExecDestroy, made)
    return made


def graphs(rig: Rig, found: Found) -> None:
    """Host time of a launch, by nodes: of an idle graph, and one behind another."""
    for shape in (CHAIN, BESIDE):
        for count in NODES:
            graph = built(rig, count, shape, lambda _: touching(rig))
            executable = instantiated(rig, graph.graph)
            launch = launching(rig, executable)
            checked(launch())
            rig.settle()
            name = f"{count} {'nodes' if count > 1 else 'node'}, {shape}"
            found.add(f"graphs: launch of {name}, idle", "us", per_call(rig, launch, calls=1))
            found.add(f"graphs: launch of {name}, in bursts", "us", per_call(rig, launch, calls=8))
            found.add(f"graphs: launch of {name}, until done", "us", until_done(rig, launch))
        graph = built(rig, 32, shape, lambda _: touching(rig))
        name = f"instantiation of 32 nodes, {shape}"
        found.add(f"graphs: {name}", "us", instantiations(rig, graph.graph))


def launching(rig: Rig, executable: Any) -> Callable[[], tuple]:
    return lambda: driver.cuGraphLaunch(executable, rig.stream)


def until_done(rig: Rig, launch: Callable[[], object]) -> Iterator[float]:
    for _ in range(rig.samples):
        begin = time.perf_counter_ns()
        launch()
        driver.cuStreamSynchronize(rig.stream)
        yield (time.perf_counter_ns() - begin) / 1000


def instantiations(rig: Rig, graph: Any) -> Iterator[float]:
    for _ in range(rig.samples):
        begin = time.perf_counter_ns()
        made = checked(driver.cuGraphInstantiate(graph, 0))
        yield (time.perf_counter_ns() - begin) / 1000
        checked(driver.cuGraphExecDestroy(made))


def updates(rig: Rig, found: Found) -> None:
    """New parameters for some nodes of 32, for all of them, and the launch behind them."""
    graph = built(rig, 32, CHAIN, lambda _: touching(rig))
    executable = instantiated(rig, graph.graph)
    launch = launching(rig, executable)
    checked(launch())
    rig.settle()
    others = [touching(rig, number) for number in (4, 5)]
    for changed in (1, 8, 32):
        found.try_to(
            f"updates: {changed} nodes",
            lambda changed=changed: set_parameters(rig, found, graph, executable, others, changed),
        )
    whole = [built(rig, 32, CHAIN, lambda _, n=n: touching(rig, n)).graph for n in (6, 7)]
    found.try_to("updates: ExecUpdate", lambda: update_whole(rig, found, executable, whole))


def set_parameters(
    rig: Rig, found: Found, graph: Built, executable: Any, others: Sequence[Any], changed: int
) -> None:
    """`cuGraphExecKernelNodeSetParams`; the parameters differ from those of the last time."""
    setting, launching = [], []
    for sample in range(rig.samples):
        what = others[sample % 2]
        begin = time.perf_counter_ns()
        for node in graph.nodes[:changed]:
            driver.cuGraphExecKernelNodeSetParams(executable, node, what)
        middle = time.perf_counter_ns()
        checked(driver.cuGraphLaunch(executable, rig.stream))
        end = time.perf_counter_ns()
        rig.settle()
        setting.append((middle - begin) / changed / 1000)
        launching.append((end - middle) / 1000)
    checked(driver.cuGraphExecKernelNodeSetParams(executable, graph.nodes[0], others[0]))
    name = f"{changed} of 32 nodes"
    found.add(f"updates: cuGraphExecKernelNodeSetParams, each of {name}", "us", setting)
    found.add(f"updates: launch after new parameters for {name}", "us", launching)


def update_whole(rig: Rig, found: Found, executable: Any, graphs: Sequence[Any]) -> None:
    updating, launching = [], []
    for sample in range(rig.samples):
        begin = time.perf_counter_ns()
        answer = driver.cuGraphExecUpdate(executable, graphs[sample % 2])
        middle = time.perf_counter_ns()
        checked(answer)
        checked(driver.cuGraphLaunch(executable, rig.stream))
        end = time.perf_counter_ns()
        rig.settle()
        updating.append((middle - begin) / 1000)
        launching.append((end - middle) / 1000)
    found.add("updates: cuGraphExecUpdate of 32 nodes", "us", updating)
    found.add("updates: launch after cuGraphExecUpdate of 32 nodes", "us", launching)
