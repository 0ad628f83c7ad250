"""Cellar, jit. The door: PTX modules compiled, kernels started.

Every kernel is lowered to IR text when the module is compiled, for the shape of block that most
launches have, so that what cannot run is known at once. Machine code is made at the first launch
of each variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.liveness import defs, uses
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.jit.codegen import compile_text
from cudasync.softgpu.jit.execution import JitExecution
from cudasync.softgpu.jit.kernel import Analysis, KernelText, lower, needs_whole_warps
from cudasync.softgpu.jit.lowering import Settings, Variant
from cudasync.softgpu.jit.memory import ATOMICS
from cudasync.softgpu.jit.program import Program, prepare
from cudasync.softgpu.jit.slots import Fit
from cudasync.softgpu.jit.special import MOST_THREADS
from cudasync.softgpu.jit.storage import module_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.launching import Dim3, Launch

WARP = 32
# Shapes of block a kernel is kept fitted to.
_MOST_FITS = 64
_USUAL = Variant(lanes=WARP, is_rowwise=True, is_whole=True)


class JitKernel:
    """A kernel of a compiled module; see `launching.CompiledKernel`."""

    def __init__(self, module: ir.Module, kernel: ir.Function, settings: Settings) -> None:
        self._program = program = prepare(module, kernel)
        self._settings = settings
        self._needs_whole_warps = needs_whole_warps(program)
        self._texts: dict[Variant, KernelText] = {}
        self._known: dict[tuple[str, bool, bool], Analysis] = {}
        self._fits: dict[tuple[Dim3, int], Fit] = {}
        self._is_order_free = is_order_free(program)
        self.text(_USUAL)
        self.name = kernel.name
        places = program.kernel_storage
        self.parameter_size = places.parameter_bytes
        self.parameter_offsets = tuple(places.parameters.values())
        self.parameter_sizes = tuple(parameter.size for parameter in kernel.parameters)
        self.static_shared_bytes = places.static_shared_bytes
        self.local_bytes = program.slab_bytes
        self.max_threads = _max_threads(kernel)

    def text(self, variant: Variant) -> KernelText:
        """The IR text of a variant."""
        found = self._texts.get(variant)
        if found is None:
            found = lower(self._program, variant, self._settings, self._known)
            self._texts[variant] = found
        return found

    def variant(self, block: Dim3) -> Variant:
        """The variant for blocks of this shape."""
        x, y, z = block
        is_line = y == z == 1
        if x % WARP and not is_line and x % 16 == 0 and not self._needs_whole_warps:
            return Variant(lanes=16, is_rowwise=True, is_whole=True)
        return Variant(
            lanes=WARP, is_rowwise=x % WARP == 0 or is_line, is_whole=x * y * z % WARP == 0
        )

    def start(self, launch: Launch) -> JitExecution:
        """Prepare to execute; compiles at the first launch of a variant."""
        return JitExecution(self.prepare(launch.block, launch.dynamic_shared_bytes), launch)

    def prepare(self, block: Dim3, dynamic_shared_bytes: int = 0) -> Fit:
        """What launches of this shape of block have in common: machine code, above all."""
        key = block, dynamic_shared_bytes
        fit = self._fits.get(key)
        if fit is None:
            fit = self._fit(*key)
            if len(self._fits) >= _MOST_FITS:
                self._fits.clear()
            self._fits[key] = fit
        return fit

    def _fit(self, block: Dim3, dynamic_shared_bytes: int) -> Fit:
        variant = self.variant(block)
        text = self.text(variant)
        function, owner = compile_text(text.text, text.functions, text.declarations)
        return Fit(
            function=function,
            owner=owner,
            program=self._program,
            variant=variant,
            frame_bytes=text.frame_bytes,
            has_waiting_loop=text.has_waiting_loop,
            is_order_free=self._is_order_free,
            block=block,
            dynamic_shared_bytes=dynamic_shared_bytes,
        )


@dataclass(frozen=True, slots=True)
class JitModule:
    """See `launching.CompiledModule`."""

    kernels: Mapping[str, JitKernel]
    variables: tuple[ir.Variable, ...]


def compile_module(
    module: ir.Module,
    *,
    memcheck: bool = True,
    record: bool = False,
    assume_varying: bool = False,
) -> JitModule:
    """Lower every kernel; PtxError for the first instruction that is not implemented.

    `assume_varying` compiles without the analysis of what lanes have in common: slow code that
    must do the same.
    """
    module = expand(module)
    settings = Settings(memcheck=memcheck, assume_varying=assume_varying, record=record)
    kernels = {kernel.name: _lowered(module, kernel, settings) for kernel in module.kernels}
    return JitModule(kernels, module_variables(module))


def _lowered(module: ir.Module, kernel: ir.Function, settings: Settings) -> JitKernel:
    """The kernel's text; PtxError also for what no emitter has thought of.

    Ill-typed PTX that the parser lets pass may fail anywhere in an emitter. To the program it is
    PTX that can not run here, and loading is where it can act on that.
    """
    try:
        return JitKernel(module, kernel, settings)
    except PtxError:
        raise
    except Exception as error:
        # At an instruction, the error would be a PtxError.
        raise PtxError(
            f"kernel {kernel.name} can not be lowered ({type(error).__name__}: {error})",
            file=module.file,
            line=kernel.span.line,
            column=kernel.span.column,
        ) from error


def _max_threads(kernel: ir.Function) -> int:
    for name in ("reqntid", "maxntid"):
        sizes = kernel.directives.get(name) or kernel.directives.get("." + name)
        if sizes:
            threads = 1
            for size in sizes:
                threads *= size
            return min(threads, MOST_THREADS)
    return MOST_THREADS


def is_order_free(program: Program) -> bool:
    """Whether atomics leave the same memory in any order of blocks.

    They do if nobody uses what they return, and if they are not sums of floats, nor exchanges.
    """
    wanted = {register.name for each in program.instructions for register in uses(each)}
    return not any(
        any(register.name in wanted for register in defs(each))
        or each.type.is_float
        or not _ORDERED.isdisjoint(each.modifiers)
        for each in program.instructions
        if each.opcode in ATOMICS
    )


_ORDERED = frozenset({"exch", "cas", "inc", "dec"})
