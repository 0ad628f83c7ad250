"""Writes the body of one random PTX kernel or function, and asks `Choices` for every choice.

The statements are in `control_flow`, `memory_accesses`, `barriers`, `warp_collectives` and
`device_functions`. This file has their shared parts, and decides which statements may follow.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from helpers.ptx_generators import (
    barriers,
    control_flow,
    device_functions,
    memory_accesses,
    warp_collectives,
)
from helpers.ptx_generators.instruction_templates import (
    DOUBLES,
    EDGES,
    FAMILIES,
    POOLS,
    PREDICATES,
    SINGLES,
)
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Choices(Protocol):
    """The source of choices: Hypothesis, which can shrink them, or a generator with a seed."""

    def pick(self, options: Sequence[Any]) -> Any: ...

    def number(self, low: int, high: int) -> int: ...


class Drawn:
    """Choices that Hypothesis makes."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


class Seeded:
    """Choices by a seed; each program is unlike the one before."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def pick(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Writer:
    """Writes the body of one kernel or function, drawing every choice."""

    def __init__(
        self,
        choices: Choices,
        *,
        threads: int = 0,
        ends_threads: bool = False,
        function: str = "",
        functions: tuple[str, ...] = (),
    ) -> None:
        self.pick = choices.pick
        self.number = choices.number
        self.threads = threads
        self.ends_threads = ends_threads
        # Whether every warp has 32 threads, all of which live to the end.
        self.has_whole_warps = not ends_threads and threads % 32 == 0 and not function
        # The name of the function being written, and the functions that it may call.
        self.function = function
        self.functions = functions
        # The register with the warp's converged lanes here; None if they are not known.
        self.members: str | None = None
        self.lines: list[str] = []
        # For each loop and block around this point: the label behind it, and the label before the
        # end of a loop's trip. "" where all threads must stay together.
        self.breaks: list[str] = []
        self.continues: list[str] = []
        # The label of a loop's next trip, and the loop's counter; "" as above.
        self.restarts: list[tuple[str, str]] = []
        self._counts = {"counter": 0, "m": 0, "L": 0}

    def register(self, letter: str) -> str:
        if letter in "Pp":
            return f"%p{self.number(0, PREDICATES - 1)}"
        return f"%{letter.lower()}{self.number(0, POOLS[letter][1] - 1)}"

    def pair(self, letter: str = "R") -> tuple[str, str]:
        """Two different registers."""
        count = PREDICATES if letter == "P" else POOLS[letter][1]
        first = self.number(0, count - 1)
        second = (first + self.number(1, count - 1)) % count
        return f"%{letter.lower()}{first}", f"%{letter.lower()}{second}"

    def _new(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}{self._counts[kind] - 1}"

    def counter(self) -> str:
        """A new register that counts the trips of a loop."""
        return f"%{self._new('counter')}"

    def mask(self) -> str:
        """A new register for a mask of lanes."""
        return f"%{self._new('m')}"

    def label(self) -> str:
        return self._new("L")

    def emit(self, text: str) -> None:
        self.lines.append(f"    {text};")

    def mark(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def declarations(self) -> list[str]:
        """The registers that the body has used."""
        pools = [f".reg .{type_} %{name.lower()}<{n}>" for name, (type_, n) in POOLS.items()]
        return [
            *pools,
            f".reg .pred %p<{PREDICATES}>",
            f".reg .u32 %counter<{self._counts['counter'] + 1}>",
            f".reg .b32 %m<{self._counts['m'] + 1}>",
        ]

    # ---- statements

    def statements(self, depth: int, *, is_uniform: bool) -> None:
        """A few statements; in uniform control flow, barriers are among them."""
        for _ in range(self.number(1, 6)):
            kinds = ["compute", "compute", "compute", "anywhere", "anywhere"]
            if depth > 0:
                kinds += ["branch", "loop", "switch"]
            if is_uniform:
                kinds += ["together"]
            elif depth > 0:
                kinds += ["tangle"]
            if self.members:
                kinds += ["talk"]
            if self.functions:
                kinds += ["call"]
            if self.function and depth > 0:
                kinds += ["recurse"]
            if control_flow.ways_out(self):
                kinds += ["leave"]
            if control_flow.ways_back(self):
                kinds += ["again"]
            if self.ends_threads and not self.number(0, 7):
                kinds = ["end"]
            match self.pick(kinds):
                case "compute":
                    self.compute()
                case "anywhere":
                    memory_accesses.anywhere(self)
                case "together":
                    barriers.together(self)
                case "talk":
                    warp_collectives.talk(self)
                case "branch":
                    control_flow.branch(self, depth, is_uniform=is_uniform)
                case "loop":
                    control_flow.loop(self, depth, is_uniform=is_uniform)
                case "switch":
                    control_flow.switch(self, depth, is_uniform=is_uniform)
                case "tangle":
                    control_flow.tangle(self, depth, is_uniform=is_uniform)
                case "call":
                    device_functions.call(self)
                case "recurse":
                    device_functions.call_itself(self)
                case "leave":
                    control_flow.leave(self)
                case "again":
                    control_flow.begin_again(self)
                case "end":
                    control_flow.end_thread(self)

    def guard(self) -> str:
        return self.pick(["", "", "", f"@{self.register('p')} ", f"@!{self.register('p')} "])

    def compute(self) -> None:
        """One random instruction of the tables."""
        template, guard = self.pick(FAMILIES[self.pick(list(FAMILIES))]), self.guard()
        # A driver's compiler loses these guards (softgpu/DESIGN.md, "Compared with a real GPU").
        self.instruction(template, "" if template[0].startswith(("testp.", "set.")) else guard)

    def instruction(self, template: list[str], guard: str = "") -> None:
        opcode, target, *sources = template
        letter = sources[0] if sources and sources[0] in POOLS else target
        where = "|".join(self.pair("P")) if target == "Q" else self.register(target)
        operands = [where] + [self.source(s, letter) for s in sources]
        self.emit(f"{guard}{opcode} {', '.join(operands)}")

    def source(self, kind: str, letter: str) -> str:
        match kind:
            case "w":
                return self.pick([self.register("R"), str(self.number(0, 70))])
            case "n":
                return self.pick([self.register(letter), self.constant(letter)])
            case "t":
                return str(self.number(0, 255))
            case "!p":
                return f"!{self.register('p')}"
        return self.register(kind) if kind in POOLS or kind == "p" else kind

    def constant(self, letter: str) -> str:
        if letter == "F":
            return f"0f{self.pick(SINGLES):08X}"
        if letter == "D":
            return f"0d{self.pick(DOUBLES):016X}"
        return str(self.pick(EDGES[letter]))
