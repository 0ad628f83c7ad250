"""Machines of the software GPU below its driver, and threads that use a machine at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.concurrency.thread_crew import hasty, together

from cudasync.softgpu import oracle
from cudasync.softgpu.core.machine import Machine

CREW = 4


def new_machine(**options: Any) -> Machine:
    """A machine with the scalar lowering; its first device's primary context is current here."""
    machine = Machine(compile_module=oracle.compile_module, **options)
    machine.is_initialized = True
    machine.push(machine.retain_primary(machine.device(0)))
    return machine


def at_once(machine: Machine, work: Callable[[int], Any], count: int = CREW) -> None:
    """Call `work(i)` on several threads, all starting at once with the same context current."""
    context = machine.context()

    def body(index: int) -> Callable[[], None]:
        def run() -> None:
            machine.push(context)
            work(index)

        return run

    with hasty():
        together(*map(body, range(count)))
