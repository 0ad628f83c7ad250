"""Cellar, abi. The table of the runtime API: enters functions, and does what all calls do first.

The runtime differs from the driver in three ways. It initialises by itself. It works in the primary
context of the thread's device if no other context is current. It keeps each thread's last error.
Its errors have the driver's numbers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.signature_letters import signature
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.function_versions import ANY_VERSION
from cudasync.softgpu.core.driver_types.result_codes import SUCCESS, DriverFailure
from cudasync.softgpu.core.driver_types.thread_state import PerThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

    Call = Callable[..., int | None]


class _Thread:
    """The runtime's state of a thread."""

    def __init__(self) -> None:
        self.device = 0
        self.error = SUCCESS


_thread: PerThread[_Thread] = PerThread(_Thread, {})
_entries: dict[str, registry.Entry] = {}
KINDS: Final[dict[str, str]] = {}
"""The letters of each function's arguments, as in `signature_letters.py`."""


def entries() -> dict[str, registry.Entry]:
    """The functions that are implemented, by name: `chapters.py` loads all of them."""
    return _entries


def runtime_function(
    name: str, kinds: str, *, in_context: bool = True, c_arguments: str | None = None
) -> Callable[[Call], Call]:
    """Enter the decorated function, with the letters of its arguments.

    The function finds the driver initialised and, if `in_context`, a context current.
    `c_arguments` is the C signature if the letters cannot give it, for structures by value.
    """

    def enter(call: Call) -> Call:
        enter_plain(name, kinds, prepared(call, in_context=in_context), c_arguments)
        return call

    return enter


def prepared(call: Call, *, in_context: bool = True) -> Callable[..., int]:
    """Wrap a call as a runtime function: initialise, find a context, keep the error."""

    def run(machine: Machine, *arguments: int) -> int:
        machine.is_initialized = True
        try:
            if in_context and machine.current() is None:
                use_device(machine, _thread.own.device)
            code = call(machine, *arguments) or SUCCESS
        except DriverFailure as failure:
            _thread.own.error = failure.code
            raise
        if code:
            _thread.own.error = code
        return code

    return run


def enter_plain(
    name: str, kinds: str, run: Callable[..., int], c_arguments: str | None = None
) -> None:
    """Enter a function that needs no preparation and leaves the last error unchanged."""
    assert name not in _entries, f"{name} is there twice"
    KINDS[name] = kinds
    c_signature = signature(kinds) if c_arguments is None else c_arguments
    _entries[name] = registry.Entry(name, ANY_VERSION, c_signature, run, True)


def use_device(machine: Machine, ordinal: int) -> None:
    """Make the primary context of a device current; it is retained until the process ends."""
    device = machine.device(ordinal)
    machine.set_current(machine.use_primary(device))
    _thread.own.device = ordinal


def own_device(machine: Machine) -> int:
    """The calling thread's device."""
    current = machine.current()
    return _thread.own.device if current is None else current.device.ordinal


def last_error() -> int:
    """The code of the calling thread's last failing call; it is kept."""
    return _thread.own.error


def forget_error() -> None:
    """Reset the calling thread's last error to success."""
    _thread.own.error = SUCCESS


@cache
def driver_function(name: str, version: int = ANY_VERSION) -> Call:
    """A function of the driver, by its name and the version of its form.

    Call this within calls only, because other modules enter the driver's functions.
    """
    entry = registry.find(name, version)
    assert entry is not None, name
    return registry.loaded(entry).call


FORWARDED: Final[dict[str, tuple[str, int, str]]] = {}
"""By name: the driver's function, the version of its form (0 if it has one form), its letters."""


def forward(rows: str) -> None:
    """Enter functions that the driver has under another name, with the same arguments.

    A row has the runtime's name and its letters (- for none). The driver's function follows if
    replacing cuda by cu does not name it, and the version of its form if it has several forms. Both
    lay out their structures alike, so a call is forwarded unchanged.
    """
    for line in rows.strip().splitlines():
        name, kinds, *driver = line.split()
        of_driver = driver[0] if driver else "cu" + name.removeprefix("cuda")
        version = int(driver[1]) if len(driver) > 1 else ANY_VERSION
        kinds = kinds.strip("-")
        FORWARDED[name] = of_driver, version, kinds
        runtime_function(name, kinds)(_forwarded(of_driver, version))


def _forwarded(name: str, version: int) -> Call:
    def call(machine: Machine, *arguments: int) -> int | None:
        return driver_function(name, version)(machine, *arguments)

    return call
