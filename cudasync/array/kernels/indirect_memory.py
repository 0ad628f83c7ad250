"""Floor 4, kernels. Memory that a launch reaches without an array argument for it.

An address may come as a value: an integer, or a word of a struct. If the kernel uses the value as
an address, it counts as the allocation of ours that it lies in. A kernel that takes pointers from
memory, or an address outside of our memory, reaches `everything`: all memory except our allocations
on other devices, and the variables of all modules on the device.

The packer for the types of a call's arguments decides once whether the call needs any of this.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.kernels.launch_accesses import NARROWED, READS_WRITES
from cudasync.atomic import Roll
from cudasync.driver.memory.allocations import ALLOCATIONS, is_known_to_driver
from cudasync.engine.hazards.accesses import Accessed, Tokens, variables_explained
from cudasync.engine.hazards.interval_map import Everywhere, Region
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from cudasync.array.kernels.kernel import Kernel
    from cudasync.array.kernels.modules import Module
    from cudasync.driver import Device
    from cudasync.engine import Var
    from cudasync.engine.hazards.accesses import Accesses

    # Accesses that the caller declares instead of unknown ones.
    Said: TypeAlias = "Accesses | None"

_WORD_BYTES = 8
_END_OF_MEMORY = (1 << 64) - 1
# Device memory is never mapped below this address: a smaller value in no known memory is a number.
_LEAST_ADDRESS = 1 << 32

# Modules, for their variables. Modules that are gone have no variables that a kernel could reach.
_modules: Roll[weakref.ref[Module]] = Roll()


def note_module(module: Module) -> None:
    """Remember a module, whose variables are part of `everything`."""
    _modules.add(weakref.ref(module))


class Word(NamedTuple):
    """A word of an argument, given as a value, that the kernel uses as an address."""

    position: int
    offset: int
    reads: bool
    writes: bool
    # The kernel stores the value, but does not use it as an address.
    is_only_kept: bool
    reason: str


class Reach:
    """The memory that calls of a kernel reach besides their array arguments, by argument types."""

    __slots__ = ("_beyond", "_device", "_packing", "_words", "positions")

    def __init__(self, kernel: Kernel, words: Sequence[Word]) -> None:
        self._packing = kernel.packing
        self._device: Device = kernel.device
        self._beyond = kernel.beyond
        self._words = words
        # The arguments whose values this object needs.
        self.positions = tuple(dict.fromkeys(word.position for word in words))

    def looked_at(self, values: Sequence[Any]) -> list[Any]:
        """The values of a call at `positions`."""
        return [values[position] for position in self.positions]

    def addresses(self, values: Sequence[Any]) -> list[tuple[Word, int]]:
        """The words in the values of `positions`."""
        raw = {
            position: self._packing.bits(position, value)
            for position, value in zip(self.positions, values, strict=True)
        }
        return [(word, _word_at(raw[word.position], word.offset)) for word in self._words]

    def widened(self, accesses: Accesses, values: Sequence[Any]) -> Accesses:
        """`accesses`, and the memory reached by the values of `positions` and in other ways."""
        return self.with_addresses(accesses, self.addresses(values))

    def with_addresses(
        self, accesses: Accesses, addresses: Sequence[tuple[Word, int]], touched: Said = None
    ) -> Accesses:
        """`accesses`, and the memory reached by these addresses and in other ways.

        Unknown accesses are `touched` if that is given, else everything.
        """
        unknown = self._beyond
        rows: list[Accessed] = []
        for word, address in addresses:
            found = regions_at(address, self._device)
            if found is not None:
                rows += [Accessed(each, word.reads, word.writes, word.reason) for each in found]
            elif not word.is_only_kept:
                unknown = (
                    unknown or f"{word.reason} is {address:#x}, which is not memory of cudasync"
                )
        if unknown and touched is None:
            return self._with_everything(accesses, unknown)
        return _with_rows(accesses, rows, touched)

    def _with_everything(self, accesses: Accesses, why: str) -> Accesses:
        _, read, written = accesses
        variables = _variables_on(self._device)
        reasons = _Everything(accesses, f"{why}: everything on device {self._device.ordinal}")
        reads = Tokens.of(dict.fromkeys((*read, *variables)), reasons)
        writes = tuple(dict.fromkeys((*written, *variables)))
        return ((), everything(self._device), ()), reads, writes


def reach_of(kernel: Kernel, arguments: Sequence[Any], values: Sequence[Any]) -> Reach | None:
    """The reach of calls with arguments of these types; None if they reach only their arrays.

    `values` are those of `arguments`.
    """
    words = []
    for i, (argument, value) in enumerate(zip(arguments, values, strict=True)):
        if kernel.packing.is_memory(i, value):
            continue
        parameter = kernel.parameters[i]
        for field in parameter.fields:
            reads, writes = NARROWED.get(type(argument), READS_WRITES[field.access])
            where = f"byte {field.offset} of " if parameter.is_array else ""
            reason = f"the address in {where}`{parameter.name}` ({field.reason})"
            # The overwritten part of the allocation is unknown, so its old value is needed.
            reads = reads or writes
            words.append(Word(i, field.offset, reads, writes, field.is_only_kept, reason))
    return Reach(kernel, words) if words or kernel.beyond else None


def regions_at(address: int, device: Device) -> tuple[Region, ...] | None:
    """The memory that `address` leads to: allocations of ours, or none if it is a number.

    None if it may lead anywhere.
    """
    found = ALLOCATIONS.at(address)
    if found:
        return tuple(Region(each.start, each.end) for each in found)
    is_number = address < _LEAST_ADDRESS and not is_known_to_driver(address, device)
    return () if is_number else None


def everything(device: Device) -> tuple[Region, ...]:
    """All memory except our allocations on other devices."""
    found: list[Region] = []
    start = 0
    for each in ALLOCATIONS.live():
        if each.ordinal is not None and each.ordinal != device.ordinal:
            if start < each.start:
                found.append(Everywhere(start, each.start))
            start = max(start, each.end)
    return (*found, Everywhere(start, _END_OF_MEMORY))


def _variables_on(device: Device) -> list[Var]:
    """The tokens of all variables that a kernel on the device could write."""
    found: list[Var] = []
    _modules.strike(_is_gone)
    for each in _modules.all():
        module = each()
        # A module that is closed, or was lost in a reset of its device, has no kernel that runs.
        if module is not None and module.device is device and not module.is_closed:
            with suppress(ClosedError):
                found += module.written_variables
    return found


def _is_gone(module: weakref.ref[Module]) -> bool:
    return module() is None


def with_touched(accesses: Accesses, touched: Said) -> Accesses:
    """`accesses`, and the declared ones in `touched`."""
    return _with_rows(accesses, (), touched)


def _with_rows(accesses: Accesses, rows: Sequence[Accessed], touched: Said) -> Accesses:
    (only_read, updated, written), read, also_written = accesses
    base = accesses
    only_read += tuple(_regions(row for row in rows if not row.writes))
    updated += tuple(_regions(row for row in rows if row.reads and row.writes))
    written += tuple(_regions(row for row in rows if not row.reads))
    if touched is not None:
        (more_read, more_updated, more_written), read_too, written_too = touched
        only_read, updated = only_read + more_read, updated + more_updated
        written += more_written
        read, also_written = (*read, *read_too), also_written + written_too
    tokens = Tokens.of(read, _Reached(base, tuple(rows), touched))
    return (only_read, updated, written), tokens, also_written


def _regions(rows: Any) -> list[Region]:
    return [row.what for row in rows]


def _word_at(raw: bytes, offset: int) -> int:
    return int.from_bytes(raw[offset : offset + _WORD_BYTES], "little")


class _Reached(NamedTuple):
    """The reasons of a launch that got addresses as values."""

    base: Accesses
    rows: tuple[Accessed, ...]
    touched: Said

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        found = [*_base_explained(self.base), *self.rows]
        if self.touched is not None:
            found += [
                Accessed(region, reads, writes, "named by touching")
                for part, (reads, writes) in zip(self.touched[0], _PARTS, strict=True)
                for region in part
            ]
            found += variables_explained(*self.touched[1:], lambda _: "named by touching")
        return tuple(found)


class _Everything(NamedTuple):
    """The reasons of a launch that may reach everything."""

    base: Accesses
    why: str

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        regions, read, _ = accesses
        whole = [Accessed(region, True, True, self.why) for region in regions[1]]
        base = _base_explained(self.base)
        named = {each.what for each in base}
        others = [each for each in read if each not in named]
        return (*base, *whole, *variables_explained(others, others, lambda _: self.why))


# For each part of accesses: whether it is read, and whether it is written.
_PARTS = ((True, False), (True, True), (False, True))


def _base_explained(base: Accesses) -> tuple[Accessed, ...]:
    tokens = base[1]
    assert isinstance(tokens, Tokens)
    return tokens.reasons.explained(base)
