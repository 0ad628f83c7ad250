"""Functions that read state from outside in all ways of Python, and changes to that state."""

from __future__ import annotations

import functools
import warnings
from array import array
from collections import ChainMap, OrderedDict, UserDict, deque
from contextvars import ContextVar
from types import MappingProxyType, ModuleType, SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from cudasync import xp


class Base:
    scale = 1.0

    def weight(self):
        return self.inner.w

    @property
    def rate(self):
        return self._rate * self.scale


class Net(Base):
    def __init__(self, w):
        self.w, self.inner, self._rate = w, SimpleNamespace(w=w), 2.0
        self.layers = [SimpleNamespace(w=w), SimpleNamespace(w=w)]

    def __call__(self, x):
        for each in self.layers:
            x = x + each.w
        return x

    def __getattr__(self, name):
        if name == "bias":
            return self.inner.w
        raise AttributeError(name)


class Slotted:
    __slots__ = ("k", "w")


def doubled(function):
    @functools.wraps(function)
    def call(x):
        return function(x) * 2

    return call


# A module of its own, whose functions have other globals.
TEXT = """
FACTOR = 2.0
table = {"k": 3.0}
def scaled(x):
    return x * FACTOR + table["k"]
"""


class State:
    """All that the functions below read, and the ways to change it."""

    def __init__(self, device):
        self.device = device
        self.made = 0
        w = self.array()
        self.module = ModuleType("a_module_of_a_user")
        exec(TEXT, vars(self.module))
        self.net, self.slotted, self.number = Net(w), Slotted(), 2.0
        self.slotted.w, self.slotted.k = w, 1.0
        self.list, self.dict, self.deque = (
            [w, 2.0],
            {"w": w, "k": [1.0], "by": {"k": 2.5}},
            deque([w]),
        )
        self.ordered, self.array_of_numpy = OrderedDict(k=1.5), np.ones(2)
        self.kind = type("Kind", (Base,), {"k": 1.0})
        self.act = lambda x: x * 2
        self.wrapped, self.chain = UserDict(k=1.5), ChainMap({}, self.dict["by"])
        self.proxy, self.bytes = MappingProxyType(self.dict["by"]), bytearray([2, 3])
        self.numbers, self.indexed = array("d", [1.5]), [1.0, 2.0]
        self.index = self.indexed.index

    def array(self):
        """Another array each time."""
        self.made += 1
        values = np.arange(self.made, self.made + 4, dtype=np.float32)
        return xp.asarray(values, device=self.device)


def functions(s):
    """Functions of an array, each of which reads something of the state in another way."""
    cell, table = s.net, s.list
    number = s.number

    def rebind(value):
        nonlocal number
        number = value

    s.rebind = rebind
    return {
        "attribute": lambda x: x * cell.w,
        "property": lambda x: x * cell.rate,
        "method": lambda x: x + cell.weight(),
        "call": lambda x: cell(x),
        "class attribute": lambda x: x * cell.scale,
        "missing attribute": lambda x: x + cell.bias,
        "optional attribute": lambda x: x * getattr(cell, "extra", 1.0),
        "computed attribute": lambda x: x * getattr(cell, "".join(["w", ""])),
        "has it": lambda x: x * 2 if hasattr(cell, "extra") else x,
        "slot": lambda x: x * s.slotted.w + s.slotted.k,
        "element": lambda x: x * table[0] * table[1],
        "elements": lambda x: functools.reduce(lambda a, b: a + b, [x * e for e in table]),
        "length": lambda x: x * len(table),
        "entry": lambda x: x * s.dict["w"] + s.dict["k"][0],
        "entries": lambda x: sum((k for k in s.dict["k"]), start=x),
        "keys": lambda x: x * len(s.dict),
        "ordered": lambda x: x * sum(s.ordered.values()),
        "deque": lambda x: x * s.deque[-1],
        "free variable": lambda x: x * number,
        "through a function": lambda x: s.act(x),
        "another module": lambda x: s.module.scaled(x),
        "global of a module": lambda x: x * s.module.FACTOR,
        "wrapped": doubled(lambda x: x * s.number),
        "partial": lambda x: functools.partial(lambda y, x: x * y.w, cell)(x),
        "default": lambda x, t=table: x * t[0],
        "class": lambda x: x * s.kind.k * s.kind.scale,
        "numpy": lambda x: x * float(s.array_of_numpy[0]),
        "branch": lambda x: x * 2 if s.number > 2 else x,
        "nested": lambda x: (lambda y: y * cell.inner.w)(x),
        "global": lambda x: x * GLOBAL["k"],
        "container in Python": lambda x: x * s.wrapped["k"],
        "chain": lambda x: x * s.chain["k"],
        "proxy": lambda x: x * s.proxy["k"],
        "bytes": lambda x: x * s.bytes[0],
        "numbers": lambda x: x * s.numbers[0],
        "context variable": lambda x: x * VARIABLE.get(),
        "method of a list": lambda x: x * s.index(2.0),
        "computed name": lambda x: x * getattr(cell, "".join(["ex", "tra"]), 1.0),
    }  # fmt: skip


GLOBAL = {"k": 2.0}
VARIABLE = ContextVar("a variable of a user", default=1.0)


def _extra(s, k):
    if hasattr(s.net, "extra"):
        del s.net.extra
    else:
        s.net.extra = k


def _into(s, k):
    w = s.net.w
    w += k


# Each gets the state and a number.
CHANGES = {
    "w": lambda s, k: setattr(s.net, "w", s.array()),
    "w in place": _into,
    "w computed": lambda s, k: setattr(s.net, "w", s.net.w + k),
    "inner w": lambda s, k: setattr(s.net.inner, "w", s.array()),
    "inner": lambda s, k: setattr(s.net, "inner", SimpleNamespace(w=s.array())),
    "rate": lambda s, k: setattr(s.net, "_rate", k),
    "scale": lambda s, k: setattr(s.net, "scale", k),
    "class scale": lambda s, k: setattr(Base, "scale", k),
    "layer": lambda s, k: setattr(s.net.layers[-1], "w", s.array()),
    "more layers": lambda s, k: s.net.layers.append(SimpleNamespace(w=s.array())),
    "extra": _extra,
    "slot": lambda s, k: setattr(s.slotted, "w", s.array()),
    "slot number": lambda s, k: setattr(s.slotted, "k", k),
    "element": lambda s, k: s.list.__setitem__(int(k) % 2, k),
    "longer": lambda s, k: s.list.append(k),
    "entry": lambda s, k: s.dict.__setitem__("w", s.array()),
    "entry behind a proxy": lambda s, k: s.dict["by"].__setitem__("k", k),
    "inner entry": lambda s, k: s.dict["k"].__setitem__(0, k),
    "inner list": lambda s, k: s.dict.__setitem__("k", [k, k]),
    "key": lambda s, k: s.dict.__setitem__(k, k),
    "ordered": lambda s, k: s.ordered.__setitem__("k", k),
    "deque": lambda s, k: s.deque.append(s.array()),
    "number": lambda s, k: setattr(s, "number", k),
    "free variable": lambda s, k: s.rebind(k),
    "function": lambda s, k: setattr(s, "act", lambda x: x * k),
    "module": lambda s, k: setattr(s.module, "FACTOR", k),
    "table of a module": lambda s, k: s.module.table.__setitem__("k", k),
    "numpy": lambda s, k: s.array_of_numpy.__setitem__(0, k),
    "kind": lambda s, k: setattr(s.kind, "k", k),
    "kind, inherited": lambda s, k: setattr(s.kind, "scale", k),
    "global": lambda s, k: GLOBAL.__setitem__("k", k),
    "container in Python": lambda s, k: s.wrapped.__setitem__("k", k),
    "bytes": lambda s, k: s.bytes.__setitem__(0, int(k)),
    "numbers": lambda s, k: s.numbers.__setitem__(0, k),
    "context variable": lambda s, k: VARIABLE.set(k),
    "indexed": lambda s, k: s.indexed.insert(0, k),
    "same values": lambda s, k: (setattr(s, "number", float(s.number)),
                                 s.dict.__setitem__("k", list(s.dict["k"]))),
}  # fmt: skip
NAMES = sorted(functions(State("cpu")))
changes = st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from([1.0, 2.0, 3.5])))


def run(decorate, device, names, steps):
    """The values of the functions at first, and after each change."""
    GLOBAL["k"], Base.scale = 2.0, 1.0
    VARIABLE.set(1.0)
    s = State(device)
    made = functions(s)
    called = [decorate(made[name]) for name in names]
    x, found = s.array(), []
    with warnings.catch_warnings():
        # A function that computes names depends on every attribute.
        warnings.filterwarnings("ignore", ".* was traced more than .* times")
        for change, k in [(None, 0.0), *steps]:
            if change is not None:
                CHANGES[change](s, k)
            found.append([f(x).numpy().tolist() for f in called for _ in range(2)])
    return found


def differences(decorate, device, names, steps):
    return run(decorate, device, names, steps) != run(lambda f: f, device, names, steps)
