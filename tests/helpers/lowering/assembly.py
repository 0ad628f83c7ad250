"""x86-64 assembly, parsed far enough to find loops and the stores to the stack in them."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

from cudasync.softgpu.jit.machine_code import codegen


def assembly(text: str, level: str = "x86-64-v3") -> str:
    """LLVM's assembly of a kernel for machines of a level, on any machine."""
    machine = _machine(level)
    return machine.emit_assembly(codegen.optimise(text, machine, level))


def optimised(text: str, level: str = "x86-64-v3") -> str:
    """The optimised LLVM IR of a kernel."""
    return str(codegen.optimise(text, _machine(level), level))


def _machine(level: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return codegen.new_machine(level, llvm.Target.from_triple("x86_64-unknown-linux-gnu"))


def functions(code: str) -> list[str]:
    """The names of the functions: a kernel's own, and those of its segments."""
    return re.findall(r"\.type\s+([\w.]+),@function", code)


class Code:
    """The basic blocks of one function: `lines` and `successors` of each block, by number."""

    def __init__(self, code: str, function: str = "kernel") -> None:
        start = code.index(f"\n{function}:")
        text = code[start : code.index(".Lfunc_end", start)].splitlines()[2:]
        # Without a frame pointer, rbp is an ordinary register.
        self._stack = "[sb]" if any("%rsp, %rbp" in line for line in text) else "s"
        self.lines: list[list[str]] = [[]]
        names: dict[str, int] = {}
        for line in (each.strip() for each in text):
            if re.fullmatch(r"\.L\w+:", line):
                names[line[:-1]] = len(self.lines)
                self.lines.append([])
            elif line and not line.startswith("."):
                self.lines[-1].append(line)
                if re.match(r"j(?!mp)", line):
                    self.lines.append([])
        self.successors = [
            [names[jump[1]] for line in lines if (jump := re.match(r"j\w+\s+(\.L\w+)$", line))]
            + [at + 1] * (at + 1 < len(self.lines) and not ends(lines))
            for at, lines in enumerate(self.lines)
        ]

    def innermost_loops(self) -> list[set[int]]:
        """The blocks of each innermost loop."""
        bodies: dict[int, set[int]] = {}
        dominators = self._dominators()
        for at, successors in enumerate(self.successors):
            for head in successors:
                if head in dominators[at]:
                    bodies.setdefault(head, {head}).update(self._up_to(at, head))
        loops = list(bodies.values())
        return [each for each in loops if not any(other < each for other in loops)]

    def stores_to_stack(self, blocks: set[int]) -> int:
        """The number of vector stores to the stack in these blocks, without blocks that call.

        A call is off the hot path, and its arguments lie in memory.
        """
        store = re.compile(rf"vmov\w+\s+%[xyz]mm\d+, -?\w*\(%r{self._stack}p\)")
        hot = [
            self.lines[at] for at in blocks if not any("call" in line for line in self.lines[at])
        ]
        return sum(bool(store.match(line)) for lines in hot for line in lines)

    def has_way_round(self, loop: set[int]) -> bool:
        """Whether the loop has a cycle without a call."""
        free = {at for at in loop if not any("call" in line for line in self.lines[at])}
        (head,) = (at for at in loop if all(at in self._dominators()[each] for each in loop))
        seen, left = set(), [each for each in self.successors[head] if each in free]
        while left:
            at = left.pop()
            if at not in seen:
                seen.add(at)
                left += [each for each in self.successors[at] if each in free]
        return head in seen and head in free

    def _up_to(self, block: int, head: int) -> set[int]:
        found: set[int] = set()
        left = [block]
        while left:
            at = left.pop()
            if at != head and at not in found:
                found.add(at)
                left += [
                    each for each, successors in enumerate(self.successors) if at in successors
                ]
        return found

    def _dominators(self) -> list[set[int]]:
        everything = set(range(len(self.lines)))
        found = [{0}, *(set(everything) for _ in self.lines[1:])]
        before = [[] for _ in self.lines]
        for at, successors in enumerate(self.successors):
            for each in successors:
                before[each].append(at)
        has_changed = True
        while has_changed:
            has_changed = False
            for at in range(1, len(self.lines)):
                new = {at}.union(
                    before[at] and set.intersection(*map(found.__getitem__, before[at]))
                )
                has_changed = has_changed or new != found[at]
                found[at] = new
        return found


def ends(lines: list[str]) -> bool:
    """Whether a block never falls through to the next one."""
    return bool(lines) and bool(re.match(r"(jmp|ret)", lines[-1]))
