"""Programs with kernels that reach memory by pointers: values, fields, or entries of tables.

Every step computes 3 * x + ..., so that a wrong order of two steps gives another sum. `play` runs a
program on the current engine; `expected` gives the right result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers.arrays.foreign_arrays import pinned
from hypothesis import strategies as st

import cudasync as cs

HEAD = """
.version 7.0
.target sm_75
.address_size 64
.visible .global .u32 counter = 1;
"""

# %rd_to is the address of the word that the step changes; %r_add is the number it adds.
_STEP = """
    ld.u32 %r_old, [%rd_to];
    mad.lo.u32 %r_new, %r_old, 3, %r_add;
    st.u32 [%rd_to], %r_new;
    ret;
"""
_REGISTERS = ".reg .b32 %r_old, %r_new, %r_add; .reg .b64 %rd_to, %rd_from, %rd_table;"


def _kernel(name: str, parameters: str, body: str) -> str:
    return f".visible .entry {name}({parameters})\n{{\n{_REGISTERS}\n{body}{_STEP}}}\n"


TEXT = HEAD + "".join(
    [
        _kernel(
            "step",
            ".param .u64 to, .param .u32 add",
            "ld.param.u64 %rd_to, [to]; ld.param.u32 %r_add, [add];",
        ),
        # struct { u32 *to; u32 add; const u32 *from; }: the step also adds the word at `from`.
        _kernel(
            "step_struct",
            ".param .align 8 .b8 v[24]",
            "ld.param.u64 %rd_to, [v]; ld.param.u32 %r_add, [v+8]; ld.param.u64 %rd_from, [v+16];"
            " ld.u32 %r_old, [%rd_from]; add.u32 %r_add, %r_add, %r_old;",
        ),
        _kernel(
            "step_table",
            ".param .u64 table, .param .u32 add",
            "ld.param.u64 %rd_table, [table]; ld.param.u32 %r_add, [add];"
            " ld.global.u64 %rd_to, [%rd_table];",
        ),
        _kernel(
            "step_counter",
            ".param .u32 add",
            "ld.param.u32 %r_add, [add]; mov.u64 %rd_to, counter;",
        ),
        # Points the table at `to`: the kernel stores this address, but accesses only the table.
        f""".visible .entry point(.param .u64 table, .param .u64 to)
{{
{_REGISTERS}
ld.param.u64 %rd_table, [table]; ld.param.u64 %rd_to, [to]; st.global.u64 [%rd_table], %rd_to; ret;
}}
.visible .entry point_at_counter(.param .u64 table)
{{
{_REGISTERS}
ld.param.u64 %rd_table, [table]; mov.u64 %rd_to, counter; st.global.u64 [%rd_table], %rd_to; ret;
}}
.visible .entry look(.param .u64 to)
{{
{_REGISTERS}
ld.param.u64 %rd_to, [to]; mov.u64 %rd_from, counter; ld.global.u32 %r_new, [%rd_from];
st.global.u32 [%rd_to], %r_new; ret;
}}
""",
    ]
)

ARRAYS = 3
TABLES = 2
# The table entry for the counter, in place of an array.
COUNTER = ARRAYS

VIEW = np.dtype([("to", "u8"), ("add", "u4"), ("from", "u8")], align=True)


def view(to: int, add: int, source: int) -> Any:
    """Make the struct that `step_struct` takes."""
    return np.array((to, add, source), VIEW)[()]


_array = st.integers(0, ARRAYS - 1)
_add = st.integers(0, 99)
_table = st.integers(0, TABLES - 1)
STEPS = {
    "array": (_array, _add),
    "integer": (_array, _add),
    "struct": (_array, _add, _array),
    "table": (_table, _add),
    "point": (_table, st.integers(0, COUNTER)),
    "point by integer": (_table, _array),
    "counter": (_add,),
    "copy in": (_array, _add),
    "copy": (_array, _array),
    "anew": (_array, _add),
    "record": (_add,),
    "launch": (_array,),
}


def programs(most: int = 14) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Lists of steps."""
    steps = [st.tuples(st.just(name), *operands) for name, operands in STEPS.items()]
    return st.lists(st.one_of(steps), max_size=most)


def expected(program: list[tuple[Any, ...]]) -> list[int]:
    """The serial result: final values of the arrays and of the counter."""
    cells = [*range(ARRAYS), 1]
    tables = list(range(TABLES))
    recorded: list[int] = []

    def step(cell: int, add: int) -> None:
        cells[cell] = (3 * cells[cell] + add) % 2**32

    for name, *operands in program:
        match name, operands:
            case (("array" | "integer"), (to, add)):
                step(to, add)
            case "struct", (to, add, source):
                step(to, add + cells[source])
            case "table", (table, add):
                step(tables[table], add)
            case (("point" | "point by integer"), (table, to)):
                tables[table] = to
            case "counter", (add,):
                step(COUNTER, add)
            case (("copy in" | "anew"), (to, add)):
                cells[to] = add
            case "copy", (to, source):
                cells[to] = cells[source]
            case "record", (add,):
                recorded.append(add)
            case "launch", (to,) if recorded:
                cells[to] = recorded.pop()
        if name == "anew":
            tables = [0 if each == operands[0] != 0 else each for each in tables]
    return cells


class Player:
    """Runs programs on the current engine."""

    def __init__(self, device: cs.Device | None = None) -> None:
        self.module = cs.Module.from_ptx(TEXT, device=device)
        self.arrays = [cs.array(np.array([i], np.uint32)) for i in range(ARRAYS)]
        self.tables = [cs.zeros(1, np.uint64) for _ in range(TABLES)]
        for i in range(TABLES):
            self("point", i, i)
        # The array that each table points at, because a table keeps nothing alive.
        self.at = list(range(TABLES))
        # Recordings whose array has no value yet, as the steps may reach it in other ways.
        self.recorded: list[tuple[Any, Any]] = []

    def launch(self, name: str, *args: Any) -> cs.Op:
        return self.module.kernel(name)[1, 1](*args)

    def __call__(self, name: str, *operands: int) -> None:
        arrays, tables = self.arrays, self.tables
        match name, operands:
            case "array", (to, add):
                self.launch("step", arrays[to], np.uint32(add))
            case "integer", (to, add):
                self.launch("step", arrays[to].ptr, np.uint32(add))
            case "struct", (to, add, source):
                self.launch("step_struct", view(arrays[to].ptr, add, arrays[source].ptr))
            case "table", (table, add):
                self.launch("step_table", tables[table], np.uint32(add))
            case "point", (table, to) if to == COUNTER:
                self.launch("point_at_counter", tables[table])
            case "point", (table, to):
                self.launch("point", tables[table], arrays[to])
            case "point by integer", (table, to):
                self.launch("point", tables[table], np.uint64(arrays[to].ptr))
            case "counter", (add,):
                self.launch("step_counter", np.uint32(add))
            case "copy in", (to, add):
                cs.copy(arrays[to], pinned([add], np.uint32))
            case "copy", (to, source) if to != source:
                cs.copy(arrays[to], arrays[source])
            case "anew", (to, add):
                self._anew(to, add)
            case "record", (add,):
                with cs.graph() as g:
                    made = cs.zeros(1, np.uint32) + np.uint32(add)
                self.recorded.append((g, made))
            case "launch", (to,) if self.recorded:
                g, made = self.recorded.pop()
                g.instantiate().launch()
                cs.copy(arrays[to], made)
        if name in ("point", "point by integer") and hasattr(self, "at"):
            self.at[operands[0]] = operands[1]

    def _anew(self, to: int, add: int) -> None:
        """Replace an array. Tables that point at the old one are turned away first."""
        for table, at in enumerate(self.at):
            if at == to != 0:
                self("point", table, 0)
        if to == 0:
            cs.copy(self.arrays[0], pinned([add], np.uint32))
        else:
            self.arrays[to] = cs.array(np.array([add], np.uint32))

    def result(self) -> list[int]:
        last = cs.zeros(1, np.uint32)
        self.launch("look", last)
        # Pinned memory lets the device order the copies. A copy of pageable memory is issued once
        # the host has seen its predecessors end, which an exploration does not know of.
        found = [pinned([0], np.uint32) for _ in range(ARRAYS + 1)]
        for host, each in zip(found, (*self.arrays, last), strict=True):
            cs.copy(host, each).wait()
        return [int(host[0]) for host in found]


def play(program: list[tuple[Any, ...]]) -> list[int]:
    """Run the program, and return the final values of the arrays and of the counter."""
    player = Player()
    for step in program:
        player(*step)
    return player.result()
