"""Cellar, abi. The table of the runtime API: how a function is entered, and what each does first.

The runtime differs from the driver in three things: it initialises by itself, it works in the
primary context of the thread's device where no other is current, and it keeps each thread's last
error. Its errors have the driver's numbers.
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
    """What the runtime knows of a thread."""

    def __init__(self) -> None:
        self.device = 0
        self.error = SUCCESS


_thread: PerThread[_Thread] = PerThread(_Thread, {})
_entries: dict[str, registry.Entry] = {}
KINDS: Final[dict[str, str]] = {}
"""The letters of each function's arguments, as `signature_letters.py` has them."""


def entries() -> dict[str, registry.Entry]:
    """The functions that are here, by name: `chapters.py` loads all of them."""
    return _entries


def runtime_function(
    name: str, kinds: str, *, in_context: bool = True, c_arguments: str | None = None
) -> Callable[[Call], Call]:
    """Enter the decorated function, with the letters of its arguments.

    It finds the driver initialised and, unless not `in_context`, a context current.
    `c_arguments` is the C signature where the letters do not give it: structures by value.
    """

    def enter(call: Call) -> Call:
        enter_plain(name, kinds, prepared(call, in_context=in_context), c_arguments)
        return call

    return enter


def prepared(call: Call, *, in_context: bool = True) -> Callable[..., int]:
    """What a runtime function does around a call: initialise, find a context, keep the error."""

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
    """Enter a function that needs nothing first and leaves the last error as it is."""
    assert name not in _entries, f"{name} is there twice"
    KINDS[name] = kinds
    c_signature = signature(kinds) if c_arguments is None else c_arguments
    _entries[name] = registry.Entry(name, ANY_VERSION, c_signature, run, True)


def use_device(machine: Machine, ordinal: int) -> None:
    """Make the primary context of a device current; it stays there to the end."""
    device = machine.device(ordinal)
    machine.set_current(machine.use_primary(device))
    _thread.own.device = ordinal


def own_device(machine: Machine) -> int:
    """The calling thread's device."""
    current = machine.current()
    return _thread.own.device if current is None else current.device.ordinal


def last_error() -> int:
    """What the calling thread's last failing call answered; it stays."""
    return _thread.own.error


def forget_error() -> None:
    """Let the calling thread's last error be a success."""
    _thread.own.error = SUCCESS


@cache
def driver_function(name: str, version: int = ANY_VERSION) -> Call:
    """A function of the driver, by its name and the version of its form.

    To be asked for in calls: the driver's functions are entered by other modules.
    """
    entry = registry.find(name, version)
    assert entry is not None, name
    return entry.call


FORWARDED: Final[dict[str, tuple[str, int, str]]] = {}
"""By name: the driver's function, the version of its form (0: it has one), its letters."""


def forward(rows: str) -> None:
    """Enter functions that are the driver's under another name, with the same arguments.

    A row: the runtime's name and its letters (- for none); then the driver's function, where cu in
    place of cuda does not name it, and the version of its form, where it has several. Structures
    that both describe are laid out alike, so a call goes on as it came.
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
