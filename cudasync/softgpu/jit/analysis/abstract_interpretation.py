"""Cellar, jit. Runs emitters without text, for the shapes of their results: see `divergence`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
from cudasync.softgpu.jit.vector_ir.values import Value, llvm_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
    from cudasync.softgpu.jit.transforms.program import Program
    from cudasync.softgpu.jit.vector_ir.uniformity import Shape


class Unknown(Exception):
    """An emitter read a register of a shape that is not known yet."""


class Probe(Lowering):
    """Runs emitters and collects the shapes of the registers that they write in `written`."""

    def __init__(
        self,
        program: Program,
        function: ir.Function,
        variant: Variant,
        settings: Settings,
        shapes: Mapping[str, Shape],
    ) -> None:
        builder = Builder(variant.lanes, is_silent=True)
        super().__init__(program, function, variant, settings, shapes, builder)
        self.written: list[tuple[str, Shape]] = []

    def load_register(self, register: ir.Register) -> Value:
        shape = self.shapes.get(register.name)
        if shape is None:
            raise Unknown
        return Value(llvm_type(register.type), "%probe", shape, "%probe", ("%probe", "%probe"))

    def store_register(self, register: ir.Register, value: Value) -> None:
        self.written.append((register.name, value.shape))
