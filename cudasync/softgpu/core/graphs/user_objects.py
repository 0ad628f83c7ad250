"""Cellar. User objects: objects of the program that live as long as graphs refer to them.

A copy of a graph has its own references, and so has each nested graph. They are counted only when
the copy is used, because a copy may be thrown away before.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.locks import Lock
from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from cudasync.softgpu.core.graphs.graph import Graph

    Reference: TypeAlias = tuple["UserObject", int]
    """A user object, and how many references to it."""

_MOVE = 1
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class UserObject:
    """A pointer, a native destructor, and a count of references."""

    def __init__(
        self, pointer: int, destructor: int, references: int, forget: Callable[[int], None]
    ) -> None:
        self.handle = new_handle()
        self.references = references
        self._pointer = pointer
        self._destructor = destructor
        # Called with the handle once there are no more references.
        self._forget = forget
        self._lock = Lock()

    def retain(self, references: int) -> None:
        """Add references."""
        with self._lock:
            self._check(references)
            self.references += references

    def release(self, references: int) -> None:
        """Drop references; the last one calls the destructor at once."""
        with self._lock:
            self._check(references)
            if references > self.references:
                raise DriverFailure(
                    INVALID_VALUE, "more references are released than the object has"
                )
            self.references -= references
            is_last = not self.references
        if is_last:
            self._forget(self.handle)
            _DESTRUCTOR(self._destructor)(self._pointer)

    def _check(self, references: int) -> None:
        if not 0 < references < 1 << 31 or not self.references:
            raise DriverFailure(INVALID_VALUE, f"{references} references")


class UserObjects:
    """All user objects of a machine with references, by handle."""

    def __init__(self) -> None:
        self._handles: Handles[UserObject] = Handles("user object", code=INVALID_VALUE)

    def get(self, handle: int) -> UserObject:
        """The user object of a handle."""
        return self._handles.get(handle)

    def create(self, pointer: int, destructor: int, references: int, flags: int) -> UserObject:
        """A new user object, with references that the program holds."""
        if flags != 1 or not destructor or not 0 < references < 1 << 31:
            raise DriverFailure(
                INVALID_VALUE,
                "a user object needs a destructor, a reference and the flag NO_DESTRUCTOR_SYNC",
            )
        made = UserObject(pointer, destructor, references, self._handles.discard)
        self._handles.add(made.handle, made)
        return made


def retain(graph: Graph, thing: UserObject, references: int, flags: int) -> None:
    """Give a graph references: new ones, or references moved from the program."""
    if flags & ~_MOVE or references <= 0 or references > 0x7FFFFFFF:
        raise DriverFailure(INVALID_VALUE, f"{references} references, flags {flags:#x}")
    if not flags & _MOVE:
        thing.retain(references)
    graph.user_objects[thing] += references


def release(graph: Graph, thing: UserObject, references: int) -> None:
    """Drop references that a graph holds."""
    if not 0 < references <= graph.user_objects.get(thing, 0):
        raise DriverFailure(INVALID_VALUE, "the graph does not hold as many references")
    graph.user_objects[thing] -= references
    if not graph.user_objects[thing]:
        del graph.user_objects[thing]
    thing.release(references)


def hold(graph: Graph) -> None:
    """Count the references of a copied graph and its nested graphs, once."""
    for each in graph.all_graphs():
        if not each.is_holding:
            each.is_holding = True
            for thing, references in each.user_objects.items():
                thing.retain(references)


def taken_from(graph: Graph) -> list[Reference]:
    """Take the references of an ending graph and its nested graphs, for `release_all`."""
    taken: list[Reference] = []
    for each in graph.all_graphs():
        held = each.user_objects
        for thing in list(held):
            # If two threads end the graph at once, only one of them gets each entry.
            references = held.pop(thing, 0)
            if references and each.is_holding:
                taken.append((thing, references))
    return taken


def exchanged(pairs: Iterable[tuple[Graph, Graph]]) -> list[Reference]:
    """Give each first graph the references of the second; return the first graphs' old ones."""
    taken: list[Reference] = []
    for own, other in pairs:
        for thing, references in other.user_objects.items():
            thing.retain(references)
        taken += own.user_objects.items()
        own.user_objects = other.user_objects.copy()
    return taken


def release_all(taken: Iterable[Reference]) -> None:
    """Drop taken references. No lock is held, because destructors are the program's code."""
    for thing, references in taken:
        thing.release(references)
