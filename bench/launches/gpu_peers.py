"""The contenders of bench_peers_gpu: ways to run a burst of launches on a device, end to end.

Each class is made with a burst and its first values. It raises if the library is not installed, or
finds no usable device. `calls` are the calls of a run, ready to be made in turn; `wait` ends a run;
`reset` and `rows` set and read the arrays.

Streams by hand are placed beforehand. So a run is only the calls that a program would make: waits,
the launch, and a record if another stream waits for it.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from bench.driver.baseline import checked
from bench.launches import bursts
from bench.launches.bursts import BLOCK, placed
from bench.launches.peers import numba_cuda

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from bench.launches.bursts import Burst

    Calls = list[Callable[[], object]]

STREAMS = 4


class Peer(Protocol):
    """The interface of each contender for bench_peers_gpu."""

    name: str
    package: str | None
    needs_hardware: bool  # it brings NVIDIA's runtime library, which the software GPU is not for
    calls: Calls

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        """Do everything that a program does once."""

    def wait(self) -> None:
        """Wait until the run is done."""

    def reset(self) -> None:
        """Set the arrays to their first values."""

    def rows(self) -> list[np.ndarray]:
        """The contents of the arrays."""


class ByHand:
    """Raw `cuda.bindings`, streams and events placed by hand."""

    name = "cuda.bindings, four streams by hand"
    package: str | None = None
    needs_hardware = False
    streams = STREAMS

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        self._raw = bursts.Raw(closing, burst, first.shape[1], kernel)
        steps = placed(burst, self.streams)
        own = [cs.Stream(kernel.device) for _ in range(self.streams)]
        events = [cs.Event(kernel.device) if step.is_awaited else None for step in steps]
        for each in (*own, *filter(None, events)):
            closing.callback(each.close)
        self.handles = [driver.CUstream(stream.handle) for stream in own]
        self.calls: Calls = []
        for step, event in zip(steps, events, strict=True):
            stream = self.handles[step.stream]
            for earlier in step.awaits:
                awaited = driver.CUevent(events[earlier].handle)
                self.calls.append(partial(driver.cuStreamWaitEvent, stream, awaited, 0))
            arguments = self._raw.arguments(step.source, step.target, stream)
            self.calls.append(partial(driver.cuLaunchKernel, *arguments))
            if event is not None:
                recorded = driver.CUevent(event.handle)
                self.calls.append(partial(driver.cuEventRecord, recorded, stream))

    def wait(self) -> None:
        for stream in self.handles:
            driver.cuStreamSynchronize(stream)

    def reset(self) -> None:
        self._raw.reset()

    def rows(self) -> list[np.ndarray]:
        return self._raw.rows()


class OneStream(ByHand):
    """Raw `cuda.bindings` on one stream: nothing overlaps, and nothing needs an order."""

    name = "cuda.bindings, one stream"
    streams = 1


class Graph(ByHand):
    """The calls of `ByHand`, captured once in a CUDA graph. A run launches it."""

    name = "CUDA graph, launched again"

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        super().__init__(closing, kernel, burst, first)
        origin, *others = self.handles
        events = [cs.Event(kernel.device) for _ in self.handles]
        for event in events:
            closing.callback(event.close)
        fork, *joins = (driver.CUevent(event.handle) for event in events)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(origin, mode))
        checked(driver.cuEventRecord(fork, origin))
        for other in others:
            checked(driver.cuStreamWaitEvent(other, fork, 0))
        for call in self.calls:
            checked(call())
        for other, join in zip(others, joins, strict=True):
            checked(driver.cuEventRecord(join, other))
            checked(driver.cuStreamWaitEvent(origin, join, 0))
        graph = checked(driver.cuStreamEndCapture(origin))
        closing.callback(driver.cuGraphDestroy, graph)
        executable = checked(driver.cuGraphInstantiate(graph, 0))
        closing.callback(driver.cuGraphExecDestroy, executable)
        self.calls = [partial(driver.cuGraphLaunch, executable, origin)]


class Cudasync:
    """`kernel[grid, block](...)`: the engine places streams and events again in each run."""

    name = "cudasync engine"
    package: str | None = None
    needs_hardware = False

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        self._first = first
        self._engine = cs.engine()
        self._arrays = [cs.array(row) for row in first]
        closing.callback(self._arrays.clear)
        bound = kernel[(first.shape[1] // BLOCK,), (BLOCK,)]
        self.calls: Calls = [
            partial(bound, self._arrays[source], self._arrays[target]) for source, target in burst
        ]

    def wait(self) -> None:
        self._engine.waitall()

    def reset(self) -> None:
        for array, row in zip(self._arrays, self._first, strict=True):
            cs.copy(array, row)
        self.wait()

    def rows(self) -> list[np.ndarray]:
        return [array.numpy() for array in self._arrays]


class Torch:
    """PyTorch's own addition in place, on its streams. Its ops use the current stream."""

    name = "torch, four streams by hand"
    package: str | None = "torch"
    needs_hardware = True

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU")
        self._first = [torch.from_numpy(row.view(np.int32).copy()) for row in first]
        self._tensors = tensors = [row.cuda() for row in self._first]
        closing.callback(torch.cuda.set_stream, torch.cuda.current_stream())
        self._streams = streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        steps = placed(burst, STREAMS)
        events = [torch.cuda.Event() for _ in steps]
        self.calls: Calls = []
        for number, step in enumerate(steps):
            stream = streams[step.stream]
            self.calls += [partial(stream.wait_event, events[one]) for one in step.awaits]
            self.calls.append(partial(torch.cuda.set_stream, stream))
            self.calls.append(partial(tensors[step.target].add_, tensors[step.source]))
            if step.is_awaited:
                self.calls.append(partial(events[number].record, stream))
        self._settle = torch.cuda.synchronize

    def wait(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def reset(self) -> None:
        for tensor, row in zip(self._tensors, self._first, strict=True):
            tensor.copy_(row)
        self._settle()

    def rows(self) -> list[np.ndarray]:
        return [tensor.cpu().numpy() for tensor in self._tensors]


class Cupy:
    """The same kernel in CuPy, on its streams. A launch uses the current stream."""

    name = "CuPy, four streams by hand"
    package: str | None = "cupy"
    needs_hardware = True

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        import cupy

        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(bursts.PTX)
            file.flush()
            add_to = cupy.RawModule(path=file.name).get_function("add_to")
        self._first = first
        self._arrays = arrays = [cupy.asarray(row) for row in first]
        shape = ((first.shape[1] // BLOCK,), (BLOCK,))
        closing.callback(cupy.cuda.get_current_stream().use)
        self._streams = streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
        steps = placed(burst, STREAMS)
        events = [cupy.cuda.Event(disable_timing=True) for _ in steps]
        self.calls: Calls = []
        for number, step in enumerate(steps):
            stream = streams[step.stream]
            self.calls += [partial(stream.wait_event, events[one]) for one in step.awaits]
            self.calls.append(stream.use)
            self.calls.append(partial(add_to, *shape, (arrays[step.source], arrays[step.target])))
            if step.is_awaited:
                self.calls.append(partial(events[number].record, stream))
        self._settle = cupy.cuda.Device().synchronize

    def wait(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def reset(self) -> None:
        for array, row in zip(self._arrays, self._first, strict=True):
            array.set(row)
        self._settle()

    def rows(self) -> list[np.ndarray]:
        self._settle()
        return [array.get() for array in self._arrays]


class Numba:
    """The same kernel in numba-cuda's Python, compiled beforehand, on its streams."""

    name = "numba-cuda, four streams by hand"
    package: str | None = "numba-cuda"
    needs_hardware = False

    def __init__(
        self, closing: ExitStack, kernel: cs.Kernel, burst: Burst, first: np.ndarray
    ) -> None:
        cuda = numba_cuda()

        @cuda.jit("void(uint32[::1], uint32[::1])")
        def add_to(source, target):
            index = cuda.grid(1)
            target[index] += source[index]

        self._first = first
        self._arrays = arrays = [cuda.to_device(row) for row in first]
        self._streams = streams = [cuda.stream() for _ in range(STREAMS)]
        grid = first.shape[1] // BLOCK
        bound = [add_to[grid, BLOCK, stream] for stream in streams]
        steps = placed(burst, STREAMS)
        events = [cuda.event(timing=False) for _ in steps]
        self.calls: Calls = []
        for number, step in enumerate(steps):
            stream = streams[step.stream]
            self.calls += [partial(events[one].wait, stream) for one in step.awaits]
            launch = bound[step.stream]
            self.calls.append(partial(launch, arrays[step.source], arrays[step.target]))
            if step.is_awaited:
                self.calls.append(partial(events[number].record, stream))
        self._settle = cuda.synchronize

    def wait(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def reset(self) -> None:
        for array, row in zip(self._arrays, self._first, strict=True):
            array.copy_to_device(row)
        self._settle()

    def rows(self) -> list[np.ndarray]:
        self._settle()
        return [array.copy_to_host() for array in self._arrays]


PEERS: tuple[type[Peer], ...] = (OneStream, ByHand, Graph, Cudasync, Torch, Cupy, Numba)
