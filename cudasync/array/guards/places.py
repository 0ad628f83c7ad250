"""Floor 4, guards. The places outside of a function: what they held, and how that is compared.

The check of a place is a function in C and its argument, which give the values of now; the caller
compares them with those of then by identity. `changed` gives the places whose value is another now,
each with the variable or attribute that it is, or None for elements. An array that was put there
during a recording has no value, so it is taken away again.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter, itemgetter
from types import CellType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from cudasync.array.guards.facts import has_attribute, is_same
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import ContextVar

    import numpy as np

ABSENT: Any = object()
# A function, its argument, and the values that it gave.
Check: TypeAlias = tuple[Any, Any, tuple[Any, ...]]
MAPPINGS = (dict, MappingProxyType)
_YES = (True,)


class Slots:
    """The slots of an object, as a mapping from names."""

    def __init__(self, owner: Any, names: set[str]) -> None:
        self._owner = owner
        self._names = names

    def get(self, name: str, default: Any) -> Any:
        if name not in self._names:
            return default
        try:
            return object.__getattribute__(self._owner, name)
        except AttributeError:
            return default

    def items_at(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple([self.get(name, ABSENT) for name in names])

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


class Space:
    """Names with values: globals, and attributes of an object, a class or a module."""

    def __init__(self, owner: Any, prefix: str, mapping: Any) -> None:
        self.owner = owner
        self.name = self.prefix = prefix
        self.mapping = mapping
        # True if every name that the code has is asked for.
        self.is_open = False
        # True for attributes of an object of the user's.
        self.is_instance = False
        # True if names are asked for that no code has.
        self.takes_all = False
        self._values: dict[str, Any] = {}
        self._absent: set[str] = set()

    def is_asked(self, name: str) -> bool:
        return name in self._values or name in self._absent

    def counted(self) -> Any:
        """A container whose size counts: a new name matters where names are computed."""
        return self.mapping if self.takes_all and isinstance(self.mapping, dict) else None

    def ask(self, name: str) -> Any:
        """The value of a name, or ABSENT, which is remembered."""
        value = self.mapping.get(name, ABSENT)
        if value is ABSENT:
            self._absent.add(name)
        else:
            self._values[name] = value
        return value

    def has_values(self) -> bool:
        return bool(self._values) or isinstance(self.mapping, Slots)

    def check(self) -> Check:
        if isinstance(self.mapping, Slots):
            names = (*self._values, *self._absent)
            kept = (*self._values.values(), *[ABSENT] * len(self._absent))
            return self.mapping.items_at, names, kept
        # A getter of one name gives its value instead of a tuple, so one name is asked twice.
        names = tuple(self._values) if len(self._values) > 1 else (*self._values, *self._values)
        return itemgetter(*names), self.mapping, tuple([self._values[name] for name in names])

    def absence(self) -> tuple[Any, frozenset[str]] | None:
        """A function that is false once one of these names exists."""
        if not self._absent or isinstance(self.mapping, Slots):
            return None
        return self.mapping.keys().isdisjoint, frozenset(self._absent)

    def changed(self) -> Iterator[tuple[str, str | None]]:
        for name in (*self._values, *self._absent):
            before = self._values.get(name, ABSENT)
            now = self.mapping.get(name, ABSENT)
            if not is_same(now, before):
                if is_array(now):
                    self._put(name, before)
                yield f"{self.prefix}{name}", name

    def _put(self, name: str, value: Any) -> None:
        if isinstance(self.owner, type):
            # The dict of a class is read-only.
            if value is ABSENT:
                type.__delattr__(self.owner, name)
            else:
                type.__setattr__(self.owner, name, value)
        elif value is ABSENT:
            del self.mapping[name]
        else:
            self.mapping[name] = value


class Cell:
    """A free variable of a function."""

    def __init__(self, name: str, variable: str, cell: CellType) -> None:
        self.name = name
        self._variable = variable
        self._cell = cell
        self.value = contents_of(cell)

    @staticmethod
    def functions_in(cell: CellType) -> list[Any]:
        value = contents_of(cell)
        return [value] if type(value) is FunctionType else []

    def has_values(self) -> bool:
        return True

    def check(self) -> Check:
        if self.value is ABSENT:
            return _unbound, self._cell, _YES
        return attrgetter("cell_contents", "cell_contents"), self._cell, (self.value, self.value)

    def absence(self) -> None:
        return None

    def counted(self) -> None:
        return None

    def changed(self) -> Iterator[tuple[str, str | None]]:
        now = contents_of(self._cell)
        if not is_same(now, self.value):
            if is_array(now) and self.value is ABSENT:
                del self._cell.cell_contents
            elif is_array(now):
                self._cell.cell_contents = self.value
            yield self.name, self._variable


class Contents:
    """The elements of a list, a dict, a set, a deque, or another container in C."""

    def __init__(self, name: str, container: Any) -> None:
        self.name = name
        self.container = container
        self._get: Any = _flat if issubclass(type(container), MAPPINGS) else tuple
        self._kept = self._get(container)

    def has_values(self) -> bool:
        return True

    def check(self) -> Check:
        return self._get, self.container, self._kept

    def absence(self) -> None:
        return None

    def counted(self) -> Any:
        return self.container

    def changed(self) -> Iterator[tuple[str, str | None]]:
        kept, inside = self._kept, self.container
        now = self._get(inside)
        if is_same(now, kept):
            return
        yield self.name, None
        old = set(map(id, kept))
        if not any(is_array(each) and id(each) not in old for each in now):
            return
        if isinstance(inside, (frozenset, MappingProxyType)):
            return
        if isinstance(inside, dict):
            half = len(kept) // 2
            before = dict(zip(kept[:half], kept[half:], strict=True))
            dict.clear(inside)
            dict.update(inside, before)
        else:
            inside.clear()
            (inside.update if isinstance(inside, set) else inside.extend)(kept)


class Variable:
    """A context variable, with its value in this context."""

    def __init__(self, name: str, variable: ContextVar[Any]) -> None:
        self.name = name
        self._variable = variable
        self._value = variable.get(ABSENT)

    def has_values(self) -> bool:
        return True

    def check(self) -> Check:
        return _value_of, self._variable, (self._value,)

    def absence(self) -> None:
        return None

    def counted(self) -> None:
        return None

    def changed(self) -> Iterator[tuple[str, str | None]]:
        # Code sets it by a call, and usually sets it back: decimal's context, for instance.
        return iter(())


class Numbers:
    """The bytes of an array of NumPy's."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.name = name
        self._array = array
        self._before = array.tobytes()

    @property
    def bytes(self) -> tuple[int, int]:
        """The first address, and the one behind the last."""
        region = resolve_one(self._array, "an array")
        return region.start, region.end

    def has_values(self) -> bool:
        return True

    def check(self) -> Check:
        return partial(_has_bytes, self._before), self._array, _YES

    def absence(self) -> None:
        return None

    def counted(self) -> None:
        return None

    def changed(self) -> Iterator[tuple[str, str | None]]:
        # An op may be writing it. Whether the trace did, nobody can tell.
        return iter(())


Place: TypeAlias = Space | Cell | Contents | Variable | Numbers


def is_array(value: Any) -> bool:
    """True for an array of ours, and for its stand-in in a trace."""
    kind = type(value)
    return has_attribute(kind, "__cudasync_plan__") or has_attribute(kind, "__cudasync_trace__")


def contents_of(cell: CellType) -> Any:
    """The value of a cell, or ABSENT."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def item(mapping: Any, key: Any) -> Any:
    """The value of a key, without the user's `__getitem__`."""
    return dict.__getitem__(mapping, key) if isinstance(mapping, dict) else mapping[key]


def _unbound(cell: CellType) -> tuple[bool]:
    return (contents_of(cell) is ABSENT,)


def _value_of(variable: ContextVar[Any]) -> tuple[Any]:
    return (variable.get(ABSENT),)


def _flat(container: Any) -> tuple[Any, ...]:
    return (*container, *container.values())


def _has_bytes(before: bytes, array: np.ndarray[Any, Any]) -> tuple[bool]:
    return (array.tobytes() == before,)
