"""Floor 4, guards. The state outside of a function that certain code can reach, as it was.

It begins at the globals and free variables of the code, and at objects among the arguments. From an
object it goes on to the attributes whose names the code has, also those of its class. From a list,
a dict, a set or a tuple it goes on to all elements. Plain data counts by value, everything else by
identity. So it may contain more than the code read, and lacks only what no name leads to: values
from functions in C, such as the clock, files, and iterators that are already under way.

No code of the user's runs while the state is looked at: properties are functions, whose code may
run later.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence, Set
from contextvars import ContextVar
from functools import cached_property, partial
from itertools import chain
from operator import call, is_
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.guards.code_reads import all_code, cells_read, is_library, line_of, reads_of
from cudasync.array.guards.facts import (
    CONTAINERS,
    Digest,
    Same,
    changed,
    has_attribute,
    is_plain,
    kind_of_value,
)
from cudasync.array.guards.other_generators import SHARED_GENERATORS, Draws, is_generator
from cudasync.array.guards.places import (
    ABSENT,
    MAPPINGS,
    Cell,
    Contents,
    Numbers,
    Slots,
    Space,
    Variable,
    item,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.array.guards.places import Place

_flattened = chain.from_iterable
# Attributes that lead to the function that an object wraps.
_WRAPPED = ("__func__", "__self__", "fget", "fset", "func", "args", "keywords")
_WRAPPERS = (partial, property, cached_property, staticmethod, classmethod, MethodType)


class Outside:
    """The state that `function` can reach by the code that it has run so far.

    `objects` are the objects among its arguments, with their names. `enter` adds the reach of one
    more piece of code, before that code runs.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        objects: Iterable[tuple[str, Any]],
        codes: Iterable[tuple[CodeType, dict[str, Any]]] = (),
        memory: frozenset[str] = frozenset(),
    ) -> None:
        self.codes: list[tuple[CodeType, dict[str, Any]]] = []
        # What is known of each place, in the order in which it was reached.
        self.facts: list[tuple[str, Any]] = []
        # The arrays outside that it may name.
        self.arrays: list[Any] = []
        # The NumPy arrays that the trace uses as memory, whose values may change at any time.
        self._memory = memory
        self._objects = [value for _, value in objects]
        self._function = function
        self._globals = getattr(function, "__globals__", None)
        self._ran: set[CodeType] = set()
        self._entered: set[tuple[CodeType, int]] = set()
        self._names: set[str] = set()
        self._takes_all = False
        self._places: list[Place] = []
        self._spaces: dict[int, Space] = {}
        self._draws: list[Draws] = []
        # Objects that were reached, by identity; keeping them keeps their identities.
        self._seen: dict[int, tuple[str, Any]] = {}
        # The functions that contain a code object, their own or that of an inner function.
        self._functions: dict[CodeType, list[tuple[str, FunctionType]]] = {}
        self._reached: deque[tuple[str, Any]] = deque([("", function), *objects])
        self._get: list[Any] = []
        self._owners: list[Any] = []
        self._kept: list[Any] = []
        self._containers: list[Any] = []
        self._sizes: list[int] = []
        self._are_absent: list[Any] = []
        self._absent: list[frozenset[str]] = []
        self._reach()
        for code, globals_ in codes:
            self.enter(code, globals_)

    def enter(self, code: CodeType, globals_: dict[str, Any]) -> None:
        """Take in what `code`, which is about to run, may read or assign."""
        key = (code, id(globals_))
        if key in self._entered:
            return
        self._entered.add(key)
        module = globals_.get("__name__")
        if is_library(module):
            return
        self.codes.append((code, globals_))
        self._ran.add(code)
        reads = reads_of(code)
        prefix = "" if globals_ is self._globals or self._globals is None else f"{module}."
        self._take(self._space(id(globals_), None, prefix, globals_), reads.globals)
        new = reads.attributes - self._names
        self._names |= new
        if reads.is_computed:
            self._takes_all = True
        for space in list(self._spaces.values()):
            if space.is_open:
                self._take(space, new)
        for name in reads.imports:
            if name in sys.modules:
                self._reached.append((name, sys.modules[name]))
        for path, function in self._functions.get(code, ()):
            self._follow(path, function)
        self._reach()

    def settle(self, is_used: Callable[[int, int], bool] = lambda start, end: False) -> None:
        """Prepare `is_current`, once all code has run. `is_used` is true for bytes that the trace
        uses as memory: what they hold is no part of it."""
        for place in self._places:
            if isinstance(place, Numbers) and is_used(*place.bytes):
                self._memory |= {place.name}
        self._places = [each for each in self._places if each.name not in self._memory]
        self.facts = [
            (name, Same(fact.array) if isinstance(fact, Digest) and name in self._memory else fact)
            for name, fact in self.facts
        ]
        checks = [each.check() for each in self._places if each.has_values()]
        self._get = [get for get, _, _ in checks]
        self._owners = [owner for _, owner, _ in checks]
        self._kept = [value for _, _, kept in checks for value in kept]
        self._containers = [found for each in self._places if (found := each.counted()) is not None]
        self._sizes = [*map(len, self._containers)]
        absences = [found for each in self._places if (found := each.absence()) is not None]
        self._are_absent = [is_disjoint for is_disjoint, _ in absences]
        self._absent = [names for _, names in absences]

    def is_current(self, objects: Sequence[tuple[str, Any]]) -> bool:
        """True if everything is as it was, with these objects among the arguments."""
        if objects and not all(map(is_, [value for _, value in objects], self._objects)):
            return False
        if not self._owners and not self._absent:
            return True
        # A few calls in C, however much there is to compare.
        try:
            values = _flattened(map(call, self._get, self._owners))
            return (
                all(map(is_, values, self._kept))
                and (not self._sizes or self._sizes == [*map(len, self._containers)])
                and (not self._absent or all(map(call, self._are_absent, self._absent)))
            )
        except (LookupError, AttributeError, ValueError, RuntimeError):
            # Something is gone, or another thread is changing it.
            return False

    def now(self, objects: Iterable[tuple[str, Any]]) -> Outside:
        """What the same code can reach now."""
        made = Outside(self._function, objects, self.codes, self._memory)
        made.settle()
        return made

    def assigned(self) -> list[str]:
        """The places that code of the trace has given another value. Another thread may have
        changed something, too: that is known by names which no code of the trace assigns."""
        reads = [reads_of(code) for code, _ in self.codes]
        names = frozenset().union(*[each.assigned for each in reads])
        is_any = any(each.assigns_computed for each in reads)
        are_elements = any(each.changes_elements for each in reads)
        return [
            place
            for each in self._places
            for place, name in each.changed()
            if is_any or (are_elements if name is None else name in names)
        ]

    def drawn(self) -> list[str]:
        """Generators of other libraries that the code has drawn from."""
        return [each.name for each in self._draws if each.has_drawn()]

    def line_of(self, name: str) -> str:
        """The line that names the last part of this place."""
        last = name.rpartition(".")[2].partition("[")[0]
        return line_of(last, [code for code, _ in self.codes])

    def against(self, other: Outside) -> list[str]:
        """What differs from `other`, in words."""
        mine, theirs = dict(self.facts), dict(other.facts)
        found = [
            changed(name, fact, theirs[name])
            for name, fact in mine.items()
            if name in theirs and fact != theirs[name]
        ]
        if not found:
            found += [f"{name} (from outside) is new" for name in mine if name not in theirs][:1]
            found += [f"{name} (from outside) is gone" for name in theirs if name not in mine][:1]
        return found

    def _reach(self) -> None:
        """Look at everything that was reached, and at what that leads to."""
        while self._reached:
            self._look_at(*self._reached.popleft())

    def _look_at(self, path: str, value: Any) -> None:
        kind = type(value)
        if is_plain(value):
            self.facts.append((path, kind_of_value(value)))
            return
        if issubclass(kind, tuple):
            self.facts.append((path, (kind, len(value))))
            self._reached.extend((f"{path}[{at}]", each) for at, each in enumerate(value))
            return
        known = self._seen.get(id(value))
        if known is not None:
            self.facts.append((path, f"the same as {known[0]}"))
            return
        self._seen[id(value)] = path, value
        if issubclass(kind, CONTAINERS):
            self._look_into(path, value)
        elif issubclass(kind, np.ndarray) and path not in self._memory:
            self._places.append(Numbers(path, value))
            self.facts.append((path, Digest(value)))
            return
        elif any(each is value for each in self._objects):
            # The signature says how it is equal; what it has is looked at.
            self.facts.append((path, kind))
        else:
            self.facts.append((path, Same(value)))
        if has_attribute(kind, "__cudasync_plan__"):
            self.arrays.append(value)
        elif issubclass(kind, FunctionType):
            self._register(path, value)
        elif issubclass(kind, ModuleType):
            if not is_library(value.__name__):
                self._open(id(vars(value)), None, f"{path}.", vars(value))
            elif value.__name__ in SHARED_GENERATORS:
                self._draws.append(Draws(path, SHARED_GENERATORS[value.__name__]()))
        elif issubclass(kind, type):
            self._look_at_class(value)
        else:
            self._look_at_object(path, value)

    def _look_into(self, path: str, value: Any) -> None:
        self._places.append(Contents(path, value))
        if issubclass(type(value), MAPPINGS):
            keys = list(value)
            named = [
                (key, kind_of_value(key)) if is_plain(key) else (at, Same(key))
                for at, key in enumerate(keys)
            ]
            self.facts.append((path, (type(value), [kind for _, kind in named])))
            for (name, _), key in zip(named, keys, strict=True):
                self._reached.append((f"{path}[{name!r}]", item(value, key)))
        else:
            self.facts.append((path, (type(value), len(value))))
            self._reached.extend((f"{path}[{at}]", each) for at, each in enumerate(value))

    def _look_at_object(self, path: str, value: Any) -> None:
        kind = type(value)
        try:
            inside = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            inside = None
        prefix = f"{path}." if path else ""
        is_users = not is_library(kind.__module__)
        if isinstance(inside, dict):
            space = self._open(id(inside), None, prefix, inside)
            space.is_instance = is_users or kind is SimpleNamespace
            # A container in Python, whose code is the library's and names what it reads itself.
            space.takes_all = not is_users and issubclass(kind, (Mapping, Sequence, Set))
            self._take(space, ())
            if "__wrapped__" in inside:
                self._reached.append((path, inside["__wrapped__"]))
        if issubclass(kind, ContextVar):
            self._places.append(Variable(path, value))
            self._reached.append((f"{path}.get()", value.get(ABSENT)))
        if is_generator(kind):
            self._draws.append(Draws(path, value))
        if issubclass(kind, BuiltinMethodType) and not isinstance(value.__self__, ModuleType):
            # `append` of a list, or `random` of a generator.
            self._reached.append((path, value.__self__))
        if issubclass(kind, _WRAPPERS):
            for name in _WRAPPED:
                each = getattr(value, name, None)
                if each is not None:
                    self._reached.append((path, each))
        if is_users:
            slots = {
                name
                for base in kind.__mro__
                for name, each in vars(base).items()
                if isinstance(each, MemberDescriptorType)
            }
            if slots:
                self._open(id(value), None, prefix, Slots(value, slots))
            self._look_at_class(kind)

    def _look_at_class(self, kind: type) -> None:
        for base in kind.__mro__:
            if not is_library(base.__module__) and id(base) not in self._spaces:
                self._seen.setdefault(id(base), (base.__qualname__, base))
                inside = vars(base)
                self._open(id(base), base, f"{base.__qualname__}.", inside)
                # Operators and calls find these without a name.
                for name, each in inside.items():
                    if name.startswith("__") and isinstance(each, FunctionType):
                        self._reached.append((f"{base.__qualname__}.{name}", each))

    def _space(self, key: int, owner: Any, prefix: str, mapping: Any) -> Space:
        """The names in `mapping`, which are attributes of `owner`."""
        found = self._spaces.get(key)
        if found is None:
            found = self._spaces[key] = Space(owner, prefix, mapping)
            self._places.append(found)
        return found

    def _open(self, key: int, owner: Any, prefix: str, mapping: Any) -> Space:
        """The same, open for every name that the code has, also later."""
        space = self._space(key, owner, prefix, mapping)
        space.is_open = True
        self._take(space, self._names)
        return space

    def _take(self, space: Space, names: Iterable[str]) -> None:
        if space.takes_all or (self._takes_all and space.is_instance):
            space.takes_all = True
            names = {*names, *space.mapping}
        for name in sorted(filter(_is_text, names)):
            if not space.is_asked(name):
                value = space.ask(name)
                if value is not ABSENT:
                    self._reached.append((f"{space.prefix}{name}", value))

    def _register(self, path: str, function: FunctionType) -> None:
        """Note a function, whose free variables count once its code runs."""
        if is_library(function.__globals__.get("__name__")):
            # A wrapper, such as a context manager: the function that it calls matters.
            for cell in function.__closure__ or ():
                self._reached.extend((path, each) for each in Cell.functions_in(cell))
            return
        for code in all_code(function.__code__):
            self._functions.setdefault(code, []).append((path, function))
        if vars(function):
            self._open(id(vars(function)), None, f"{path}.", vars(function))
            if "__wrapped__" in vars(function):
                self._reached.append((path, vars(function)["__wrapped__"]))
        self._follow(path, function)

    def _follow(self, path: str, function: FunctionType) -> None:
        code = function.__code__
        read = cells_read(code, self._ran)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in read and id(cell) not in self._seen:
                label = name if function is self._function else f"{name} of {code.co_qualname}"
                self._seen[id(cell)] = label, cell
                place = Cell(label, name, cell)
                self._places.append(place)
                if place.value is ABSENT:
                    self.facts.append((label, "unbound"))
                else:
                    self._reached.append((label, place.value))
        if code in self._ran:
            for each in (function.__defaults__, function.__kwdefaults__):
                if each and id(each) not in self._seen:
                    self._reached.append((f"defaults of {code.co_qualname}", each))


def _is_text(name: Any) -> bool:
    return isinstance(name, str)
