"""What something keeps alive, by going through all that it refers to."""

from __future__ import annotations

import gc
import sys
from types import ModuleType


def kept_by(*things: object, kind: type) -> int:
    """How many of a kind these refer to, over any number of steps.

    Not by way of modules and classes, which refer to everything and keep it anyhow.
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
    """True in a ring. Without a GIL, the collector also finds what another thread let go of last:
    it is for the thread that made it to free that, and nothing refers to it."""
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
