"""Objects that an object keeps alive, found by following all its references."""

from __future__ import annotations

import gc
import sys
from types import ModuleType


def kept_by(*things: object, kind: type) -> int:
    """The number of objects of a kind that `things` refer to, over any number of steps.

    Modules and classes are skipped, because they refer to everything and stay alive anyway.
    """
    everybodys = {id(vars(module)) for module in list(sys.modules.values())}
    seen, todo, found = everybodys, list(things), 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, ModuleType | type):
            continue
        seen.add(id(thing))
        found += type(thing) is kind
        todo += gc.get_referents(thing)
    return found


def refers_to_itself(thing: object, garbage: list[object]) -> bool:
    """True in a cycle. Without a GIL the collector also finds objects that another thread dropped
    last: their owner thread must free them, and nothing refers to them."""
    dead = {id(each) for each in garbage}
    seen: set[int] = set()
    todo = gc.get_referents(thing)
    while todo:
        each = todo.pop()
        if each is thing:
            return True
        if id(each) in dead and id(each) not in seen:
            seen.add(id(each))
            todo += gc.get_referents(each)
    return False
