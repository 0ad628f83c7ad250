"""Cellar. The instructions on textures and surfaces, and the rule for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.expansion.textures.accesses import Accesses
from cudasync.softgpu.expansion.textures.fetches import Fetches
from cudasync.softgpu.expansion.textures.functions import functions

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Module
    from cudasync.softgpu.expansion.rewriter import Parts, Rule


OBJECT_OPCODES: Final = ("tex", "tld4", "txq", "suq", "suld", "sust", "sured")


class Textures:
    """Takes apart a module's instructions on textures and surfaces."""

    def __init__(self, module: Module) -> None:
        self._fetches = Fetches(module)
        accesses = Accesses(module, self._fetches.wanted)
        rules: tuple[Rule, ...] = (
            self._fetches.fetch,
            self._fetches.gather,
            self._fetches.query,
            self._fetches.query,
            accesses.load,
            accesses.store,
            accesses.combine,
        )
        self._rules = dict(zip(OBJECT_OPCODES, rules, strict=True))

    def rewrite(self, parts: Parts, instruction: Instruction) -> bool:
        """Take the instruction apart, or leave it to be refused."""
        rule = self._rules.get(instruction.opcode)
        return rule is not None and rule(parts, instruction)

    def functions(self) -> tuple[Function, ...]:
        """The functions that the rewritten instructions call."""
        return functions(self._fetches.wanted)
