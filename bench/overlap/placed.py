"""The commands of a program on streams placed by hand, with raw streams and events.

A profile tells the commands of a run: the time of each kernel, the size of each copy, and which of
them read what another wrote. `Placed` enqueues the same: kernels of the same duration, copies of
the same size. Its streams are those of a programmer who knows the whole program: kernels that
follow each other have a stream, and copies in each direction have one, as a device has one copy
engine for each. Functions of the host run when a command needs them. So do copies of ordinary host
memory, in which the driver waits, and the rest of them last: until then nothing waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from cudasync.experiments.clocks import Stopwatch, device_clock_is_wall_clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from cudasync.profile.record import Record

KERNELS = Path(__file__).parent / "work.cu"
BLOCK = 32
# The virtual clock of the software GPU: a kernel takes 2 us, and a nanosecond for each thread.
LATENCY_US, THREADS_PER_US = 2.0, 1000.0
COMMANDS = ("kernel", "HtoD", "DtoH", "DtoD")
CALIBRATION_ROUNDS = 1 << 16


class Command:
    """A command: what it needs, and its stream."""

    def __init__(self, record: Record, needs: Sequence[Command]) -> None:
        self.record = record
        self.needs = needs
        self.is_host = record.kind == "host"
        # The driver waits inside.
        self.is_blocking = "pageable" in (record.place or "")
        self.stream: Any = None
        self.event: cs.Event | None = None
        self.is_over = False


class Placed:
    """The commands of a run, on at most `most` streams for kernels of each device; all of them on
    one stream of each device if that is 1."""

    def __init__(
        self, closing: ExitStack, records: Sequence[Record], *, most: int | None = None
    ) -> None:
        self._closing = closing
        self._most = most
        self._streams: dict[tuple[int, object], cs.Stream] = {}
        self._tails: dict[object, Command] = {}
        self._turn: dict[int, int] = {}
        self._is_real = device_clock_is_wall_clock()
        self._kernels: dict[int, cs.Kernel] = {}
        self._rounds_per_us: dict[int, float] = {}
        self.commands = _placeable(records)
        for each in self.commands:
            for needed in each.needs:
                if needed.event is None and not needed.is_host:
                    needed.event = cs.Event(cs.Device(needed.record.device or 0))
                    closing.callback(needed.event.close)
            if not each.is_host:
                self._place(each)
        largest = max((each.record.size_bytes for each in self.commands), default=0)
        self._memory: dict[int, Any] = {}
        self._pinned = cs.pinned_empty((max(largest, 1),), np.uint8)
        self._pageable = np.zeros(max(largest, 1), np.uint8)
        for device in {device for device, _ in self._streams}:
            self._prepare(device, max(largest, 4096))

    def run(self) -> float:
        """Seconds by the device's clock until all commands are over."""
        stopwatch = Stopwatch()
        for each in self.commands:
            each.is_over = False
        for each in self.commands:
            if not (each.is_host or each.is_blocking):
                self._enqueue(each)
        for each in self.commands:
            if each.is_blocking:
                self._do(each)
        for stream in self._streams.values():
            stream.synchronize()
        return stopwatch.stop()[0] / 1e3

    def _place(self, command: Command) -> None:
        """Give `command` its stream: that of the command before it, if it is the last there."""
        record = command.record
        device = record.device or 0
        if self._most == 1:
            key: object = 0
        elif record.kind in ("HtoD", "DtoH"):
            key = record.kind
        else:
            ours = [each for each in command.needs if not each.is_host]
            followed = [each for each in reversed(ours) if self._tails.get(each.stream) is each]
            kernels = [each for each in followed if each.record.kind not in ("HtoD", "DtoH")]
            kernels = [each for each in kernels if (each.record.device or 0) == device]
            if kernels:
                command.stream = kernels[0].stream
            key = self._turn.get(device, 0)
            if command.stream is None:
                self._turn[device] = key + 1
            if self._most is not None:
                key %= self._most
        if command.stream is None:
            command.stream = (device, key)
        if command.stream not in self._streams:
            stream = self._streams[command.stream] = cs.Stream(cs.Device(device))
            self._closing.callback(stream.close)
        self._tails[command.stream] = command

    def _prepare(self, device: int, largest: int) -> None:
        """Compile the kernel for a device; on real hardware, measure its speed."""
        cs.Device(device).use()
        self._kernels[device] = kernel = cs.Module.from_file(KERNELS).kernel("work")
        buffers = [cs.DeviceBuffer(largest, device=cs.Device(device)) for _ in range(2)]
        self._memory[device] = buffers
        for buffer in buffers:
            self._closing.callback(buffer.close)
        if self._is_real:
            stream = cs.Stream(cs.Device(device))
            times = []
            for rounds in (1, CALIBRATION_ROUNDS):
                begin, end = (cs.Event(cs.Device(device), timing=True) for _ in range(2))
                stream.record(begin)
                cs.launch(kernel, grid=1, block=BLOCK, args=(buffers[0], rounds), stream=stream)
                stream.record(end)
                stream.synchronize()
                times.append(end.elapsed_ms(begin) * 1e3)
            stream.close()
            self._rounds_per_us[device] = CALIBRATION_ROUNDS / (times[1] - times[0])
        cs.Device(0).use()

    def _do(self, command: Command) -> None:
        """What the host does, unless it is done: a copy in which it waits; or a function, which
        takes no time by a device's clock, but waits for what it needs."""
        if command.is_over:
            return
        command.is_over = True
        if command.is_blocking:
            self._enqueue(command)
            return
        for each in command.needs:
            if each.is_host or each.is_blocking:
                self._do(each)
            else:
                assert each.event is not None
                each.event.synchronize()

    def _enqueue(self, command: Command) -> None:
        stream, record = self._streams[command.stream], command.record
        for each in command.needs:
            if each.is_host or each.is_blocking:
                self._do(each)
            if not each.is_host and each.stream != command.stream:
                assert each.event is not None
                stream.wait(each.event)
        device = record.device or 0
        first, second = self._memory[device]
        if record.kind == "kernel":
            threads, rounds = BLOCK, 0
            if self._is_real:
                rounds = max(1, int(record.duration_us * self._rounds_per_us[device]))
            else:
                threads = max(1, round((record.duration_us - LATENCY_US) * THREADS_PER_US))
            cs.launch(
                self._kernels[device],
                grid=-(-threads // BLOCK),
                block=BLOCK,
                args=(first, np.int32(rounds)),
                stream=stream,
            )
        else:
            size = record.size_bytes
            host = self._pageable if command.is_blocking else self._pinned
            source, target = {
                "HtoD": (host, first),
                "DtoH": (first, host),
                "DtoD": (first, second),
            }[record.kind]
            cs.memcpy_async(target, source, stream=stream, size_bytes=size)
        if command.event is not None:
            stream.record(command.event)


def commands(records: Sequence[Record]) -> list[Record]:
    """The commands of devices, and the functions of the host that read or write what others do."""
    used = {each.on for record in records for each in record.before}
    return [
        each
        for each in records
        if each.kind in COMMANDS or (each.kind == "host" and (each.before or each in used))
    ]


def _placeable(records: Sequence[Record]) -> list[Command]:
    """The commands and functions in push order; what reads needs what wrote."""
    made: dict[Record, Command] = {}
    for record in commands(records):
        needs = [made[d.on] for d in record.before if d.hazard == "RAW" and d.on in made]
        made[record] = Command(record, needs)
    return list(made.values())
