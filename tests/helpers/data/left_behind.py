"""What a pipeline could leave behind: threads, processes, shared memory, pinned buffers."""

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
    """The processes that a process started, but multiprocessing's resource tracker."""
    pid = of or os.getpid()
    found = set()
    for tasks in Path(f"/proc/{pid}/task").iterdir():
        # Threads and processes may end while they are looked at.
        with suppress(OSError):
            for child in (tasks / "children").read_text().split():
                command = b"resource_tracker"
                with suppress(OSError):
                    command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"resource_tracker" not in command:
                    found.add(int(child))
    return found


def threads():
    """The engines' workers, and threads of the program: `threading` knows of the latter alone."""
    found = set()
    for number, frame in sys._current_frames().items():
        names = []
        while frame is not None:
            names.append(frame.f_code.co_filename.rpartition("/")[2])
            frame = frame.f_back
        # That one is the process's.
        if "watchdog.py" not in names:
            found.add(number)
    return found


def pinned():
    return {each.start for each in ALLOCATIONS.live() if each.ordinal is None}


def mapped():
    """The shared memory that this process has in its address space."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.partition(" ")[0] for line in lines if "/psm_" in line}


def mapped_names():
    """The names that this shared memory has, or had."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.partition("/dev/shm/")[2].split()[0] for line in lines if "/psm_" in line}


@contextmanager
def nothing_left_behind():
    """What is begun inside has ended soon after, all of it; yields the names of shared memory."""
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

    # What is dropped, and not closed, ends by itself.
    end = time.monotonic() + PATIENCE_S
    while left() and time.monotonic() < end:
        os.sched_yield()
    still = left()
    assert not still, still
