"""Things that a pipeline could leave behind: threads, processes, shared memory, pinned buffers."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cudasync.data.processes import blocks
from cudasync.driver.memory.allocations import ALLOCATIONS

PATIENCE_S = 60.0


def children(of=None):
    """The child processes of a process, without multiprocessing's resource tracker."""
    pid = of or os.getpid()
    found = set()
    for tasks in Path(f"/proc/{pid}/task").iterdir():
        # Threads and processes may end during this look.
        with suppress(OSError):
            for child in (tasks / "children").read_text().split():
                command = b"resource_tracker"
                with suppress(OSError):
                    command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"resource_tracker" not in command:
                    found.add(int(child))
    return found


def threads():
    """The engines' workers and the program's threads. `threading` lists only the latter."""
    found = set()
    for number, frame in sys._current_frames().items():
        names = []
        while frame is not None:
            names.append(frame.f_code.co_filename.rpartition("/")[2])
            frame = frame.f_back
        # The watchdog belongs to the process.
        if "watchdog.py" not in names:
            found.add(number)
    return found


def pinned():
    return {each.start for each in ALLOCATIONS.live() if each.ordinal is None}


def mapped():
    """The shared memory in this process's address space."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.partition(" ")[0] for line in lines if "/psm_" in line}


def mapped_names():
    """The names of this shared memory, also after they were unlinked."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.partition("/dev/shm/")[2].split()[0] for line in lines if "/psm_" in line}


@contextmanager
def nothing_left_behind():
    """Everything that begins inside must end soon after. Yields the names of shared memory."""
    before = {"threads": threads(), "processes": children(), "pinned": pinned(), "maps": mapped()}
    names = []
    made = blocks.SharedMemory

    def noted(*arguments, **options):
        memory = made(*arguments, **options)
        names.append(memory.name.lstrip("/"))
        return memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SharedMemory", noted)
        yield names

    def left():
        now = {"threads": threads(), "processes": children(), "pinned": pinned(), "maps": mapped()}
        found = {what: now[what] - before[what] for what in now}
        found["names"] = {name for name in names if Path("/dev/shm", name).exists()}
        return {what: which for what, which in found.items() if which}

    # Objects that are dropped without `close` end by themselves.
    end = time.monotonic() + PATIENCE_S
    while left() and time.monotonic() < end:
        os.sched_yield()
    still = left()
    assert not still, still
