"""Floor 0. Names of a package that are imported when a program first asks for one of them.

A package passes on names of its modules. If its `__init__` imported them all, then the import of
one module would load all of its neighbours: of the 700 that a first array loaded, it used 200.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class _Package(types.ModuleType):
    """A package whose late names are not covered by modules of the same name.

    Importing `profile.profile` sets that name in the package to the module. Then `__getattr__`
    would never be asked for the function `profile`.
    """

    # By late name, its module.
    __late__: dict[str, str]

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, types.ModuleType) and name in self.__late__):
            super().__setattr__(name, value)


def names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package (PEP 562), for the names that each of its modules has.

    Any number of threads may ask at once: the import system runs a module once, and all of them
    find the same object.
    """
    room = sys.modules[package]
    late = {name: module for module, found in modules.items() for name in found}
    vars(room)["__late__"] = late
    vars(room)["__dir__"] = lambda: sorted(vars(room)["__all__"])
    room.__class__ = _Package

    def get(name: str) -> object:
        module = late.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        found = getattr(importlib.import_module(f"{package}.{module}"), name)
        # The next look-up finds it without this function.
        vars(room)[name] = found
        return found

    return get


class Module:
    """A module that is imported when one of its names is first used.

    For names that a common module needs, but most programs do not.
    """

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, name: str) -> object:
        found = getattr(importlib.import_module(self.__name), name)
        vars(self)[name] = found
        return found
