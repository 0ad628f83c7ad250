"""Floor 4, guards. The names that a piece of Python code may read or assign, from its bytecode.

They bound what the code can reach: an attribute is read by its name, and elements only of
containers that were reached by name.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Calls with a computed name may read any attribute.
_BY_NAME = frozenset({"getattr", "setattr", "delattr", "hasattr"})
_ANY_NAME = frozenset({"vars", "attrgetter", "__dict__", "dir"})
# Between `getattr` and its call these load the object, a name that is a constant, and a default.
# Anything else may compute the name.
_ARGUMENTS = (
    "LOAD_FAST",
    "LOAD_CONST",
    "LOAD_GLOBAL",
    "LOAD_DEREF",
    "LOAD_SMALL",
    "PUSH_NULL",
    "PRE",
)
# Methods that change a list, a deque, a set or a dict.
_CHANGES = frozenset(
    (
        *("append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft"),
        *("popitem", "clear", "sort", "reverse", "rotate", "update", "setdefault", "add"),
        *("discard", "difference_update", "intersection_update", "symmetric_difference_update"),
        *("move_to_end", "__setitem__", "__delitem__", "heappush", "heappop", "heapreplace"),
    )
)
# Packages whose code reads no state of the program; their objects count by identity.
_LIBRARIES = frozenset({*sys.stdlib_module_names, "cudasync", "numpy"}) - {"__main__"}


class Reads(NamedTuple):
    """The names of one code object, without those of functions inside it."""

    globals: tuple[str, ...]
    attributes: frozenset[str]
    cells: frozenset[str]
    imports: tuple[str, ...]
    # The names that it may assign or delete.
    assigned: frozenset[str]
    # True if it may read attributes of any name; True if it may assign them.
    is_computed: bool
    assigns_computed: bool
    # True if it may change a list, a dict or a set.
    changes_elements: bool


@lru_cache(4096)
def reads_of(code: CodeType) -> Reads:
    """The names that `code` may read or assign."""
    globals_, attributes, cells, imports, assigned = set(), set(), set(), set(), set()
    is_computed = False
    # The strings that were loaded since a call by name began; None outside of one.
    given: list[str] | None = None
    for each in dis.get_instructions(code):
        operation, name = each.opname, each.argval
        if given is not None:
            if operation in ("CALL", "CALL_KW"):
                is_computed = is_computed or not given
                given = None
            elif not operation.startswith(_ARGUMENTS if given else (*_ARGUMENTS, "LOAD_ATTR")):
                given, is_computed = None, True
            elif operation == "LOAD_CONST" and isinstance(name, str):
                given.append(name)
        if operation.startswith(("STORE", "DELETE")):
            assigned.add(name if isinstance(name, str) else operation)
        if "GLOBAL" in operation or (operation.endswith("_NAME") and "IMPORT" not in operation):
            globals_.add(name)
            is_computed = is_computed or name in _ANY_NAME
            if name in _BY_NAME:
                given = []
        elif "ATTR" in operation or operation in ("LOAD_METHOD", "IMPORT_FROM"):
            attributes.add(name)
            is_computed = is_computed or name in _ANY_NAME
        elif "DEREF" in operation:
            cells.add(name)
        elif operation == "IMPORT_NAME":
            imports.add(name)
    attributes.update(_identifiers(code.co_consts))
    return Reads(
        tuple(sorted(globals_)),
        frozenset(attributes),
        frozenset(cells),
        tuple(sorted(imports)),
        frozenset(assigned),
        is_computed,
        bool(globals_ & {"setattr", "delattr"}) or "__dict__" in attributes,
        bool(_CHANGES & attributes) or bool(assigned & {"STORE_SUBSCR", "DELETE_SUBSCR"}),
    )


def cells_read(code: CodeType, has_run: Any) -> set[str]:
    """The free variables of `code` that it read, or a function inside that has run."""
    found = set(reads_of(code).cells) if code in has_run else set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= cells_read(inner, has_run)
    return found.intersection(code.co_freevars)


def all_code(code: CodeType) -> Iterator[CodeType]:
    """`code`, and that of functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from all_code(each)


def line_of(name: str, codes: Any) -> str:
    """ "file:line" where one of these codes names it; "" if none does."""
    for code in codes:
        line = code.co_firstlineno
        for each in dis.get_instructions(code):
            line = each.positions.lineno or line if each.positions else line
            if each.argval == name:
                return f"{code.co_filename}:{line}"
    return ""


def is_library(module: Any) -> bool:
    """True for a module of Python itself, of NumPy or of this package, by its name."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _identifiers(constants: tuple[Any, ...]) -> Iterator[str]:
    """Names that appear as text: `getattr(x, "rate")`, and keywords of a class pattern."""
    for each in constants:
        if isinstance(each, str) and each.isidentifier():
            yield each
        elif isinstance(each, tuple):
            yield from _identifiers(each)
