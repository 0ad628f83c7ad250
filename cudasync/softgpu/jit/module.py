"""Cellar, jit. The entry point: compiles PTX modules and starts their kernels.

When a module is compiled, every kernel is lowered to IR text, or its kept text is found. The text
is for the block shape that most launches have, so that a kernel that cannot run is known at once.
Machine code is made at the first launch of each variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.interface.launch import Found
from cudasync.softgpu.interface.race_records import NEAR_NAME
from cudasync.softgpu.jit.analysis.race_free_accesses import race_free_accesses
from cudasync.softgpu.jit.checks.initialisation_calls import WINDOW_CALL
from cudasync.softgpu.jit.convergence.calls import TELLING
from cudasync.softgpu.jit.ir_cache import KernelTexts, keep, key_of_compiled
from cudasync.softgpu.jit.kernel_abi.specialisation import PIECE_WEIGHT, Settings, Variant
from cudasync.softgpu.jit.launch.block_slots import Fit
from cudasync.softgpu.jit.launch.kernel_outline import Source, outline_of, parts_of, record_of
from cudasync.softgpu.jit.launch.work_distribution import JitExecution
from cudasync.softgpu.jit.machine_code import disk_cache
from cudasync.softgpu.jit.machine_code.codegen import compile_text
from cudasync.softgpu.jit.transforms.memory_layout import module_variables
from cudasync.softgpu.jit.transforms.program import prepare
from cudasync.softgpu.semantics.unsupported_instructions import lower_each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.interface.launch import Dim3, Launch
    from cudasync.softgpu.jit.kernel_abi.kernel_text import KernelText
    from cudasync.softgpu.jit.launch.kernel_outline import Outline
    from cudasync.softgpu.jit.transforms.program import Program

WARP = 32
# A kernel keeps fits for this many block shapes.
_MOST_FITS = 64
_USUAL = Variant(lanes=WARP, is_rowwise=True, is_whole=True)


class JitKernel:
    """A kernel of a compiled module; see `launch.CompiledKernel`."""

    def __init__(
        self,
        outline: Outline,
        settings: Settings,
        source: str | None,
        find_program: Callable[[], Program],
    ) -> None:
        """`source` identifies the PTX on disk; `find_program` returns the instructions."""
        self.outline = outline
        # Holds the program once a caller has asked for it.
        self._programs: list[Program] = []
        self._find_program = find_program
        self._races = settings.races
        self._has_units = settings.has_units
        # By the shape of blocks: accesses that cannot race there.
        self._quiet: dict[Dim3, tuple[int, ...]] = {}
        self._texts = KernelTexts(outline.name, self._program, settings, source)
        self._fits: dict[tuple[Dim3, int], Fit] = {}
        self._needs_whole_warps = self.text(_USUAL).traits.needs_whole_warps
        self.name = outline.name
        self.parameter_size = outline.parameter_bytes
        self.parameter_offsets = outline.parameter_offsets
        self.parameter_sizes = outline.parameter_sizes
        self.static_shared_bytes = outline.static_shared_bytes
        self.local_bytes = outline.slab_bytes
        self.max_threads = outline.most_threads

    def _program(self) -> Program:
        """The instructions. Two threads may find them at once; their programs are equal."""
        if not self._programs:
            self._programs.append(self._find_program())
        return self._programs[0]

    @property
    def unit(self) -> int:
        """The bytes of memory that each mark of a recording stands for."""
        return self._program().unit if self._has_units else 1

    @property
    def sites(self) -> tuple[ir.Instruction, ...]:
        """The accesses of the program that a race check may report."""
        program = self._program()
        return tuple(program.instructions[number] for number in program.sites)

    @property
    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel and its functions, as they were lowered."""
        return self._program().parts()

    def text(self, variant: Variant) -> KernelText:
        """The IR text of a variant."""
        return self._texts.of(variant)

    def variant(self, block: Dim3) -> Variant:
        """The variant for blocks of this shape."""
        x, y, z = block
        is_line = y == z == 1
        quiet = self._quiet_in(block) if self._races else ()
        if x % WARP and not is_line and x % 16 == 0 and not self._needs_whole_warps:
            return Variant(lanes=16, is_rowwise=True, is_whole=True, quiet=quiet)
        return Variant(
            lanes=WARP,
            is_rowwise=x % WARP == 0 or is_line,
            is_whole=x * y * z % WARP == 0,
            quiet=quiet,
        )

    def _quiet_in(self, block: Dim3) -> tuple[int, ...]:
        """The accesses that cannot race in such blocks; two threads may find them at once."""
        found = self._quiet.get(block)
        if found is None:
            program = self._program()
            shared = program.kernel_storage.shared
            found = self._quiet[block] = race_free_accesses(program.kernel, block, shared)
        return found

    sees_threads = True

    def shares(self, block: Dim3) -> bool:
        """Whether threads may race on shared memory, in blocks of this shape."""
        return f"call void {NEAR_NAME}" in self.text(self.variant(block)).text

    def has_windows(self, block: Dim3) -> bool:
        """Whether threads use the block's own memory, in blocks of this shape."""
        return WINDOW_CALL in self.text(self.variant(block)).text

    def parts_ways(self, block: Dim3) -> bool:
        """Whether threads may miss a barrier, or lanes each other, in blocks of this shape."""
        text = self.text(self.variant(block)).text
        return any(each in text for each in TELLING)

    def start(self, launch: Launch) -> JitExecution:
        """Prepare to execute; compiles at the first launch of a variant."""
        return JitExecution(self.prepare(launch.block, launch.dynamic_shared_bytes), launch)

    def prepare(self, block: Dim3, dynamic_shared_bytes: int = 0) -> Fit:
        """The `Fit` that launches of this block shape share: above all, machine code.

        Threads that call at once may each build a fit. The fits are equal, and one is kept.
        """
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
            outline=self.outline,
            find_program=self._program,
            variant=variant,
            text=text,
            block=block,
            dynamic_shared_bytes=dynamic_shared_bytes,
        )


@dataclass(frozen=True, slots=True)
class JitModule:
    """See `launch.CompiledModule`."""

    kernels: Mapping[str, JitKernel]
    refused: Mapping[str, PtxError]
    variables: tuple[ir.Variable, ...]


def compile_module(
    module: ir.Module,
    *,
    memcheck: bool = True,
    record: bool = False,
    races: bool = False,
    convergence: bool = False,
    reads: bool = True,
    windows: bool = False,
    units: bool = False,
    image: bytes | None = None,
    only: str | None = None,
    assume_varying: bool = False,
    piece_weight: int = PIECE_WEIGHT,
) -> JitModule:
    """Lower every kernel that can be lowered; PtxError for the first instruction that is not PTX.

    `image` is the text that the module was parsed from, if texts are to be kept on disk. With
    `only`, no other kernel is lowered.
    `assume_varying` compiles without the uniformity analysis: slow code with the same results.
    `piece_weight` is the weight of the pieces into which large functions are split.
    """
    module = expand(module) if only is None else _expanded(module)
    settings = Settings(
        memcheck, assume_varying, record, races, convergence, reads, windows, units, piece_weight
    )
    source = None if image is None else _source_of(image)
    kernels, refused = lower_each(
        module, lambda kernel: _lowered(module, kernel, settings, source), only
    )
    variables = module_variables(module)
    is_whole = only is None and not refused and not variables
    key = None if source is None or not is_whole else _key(source, settings)
    if key is not None:
        keep(key, record_of(module, [each.outline for each in kernels.values()]))
    return JitModule(kernels, refused, variables)


# A module and its expansion, the latest of which one kernel was lowered: another one may follow.
_latest: tuple[ir.Module, ir.Module] | None = None


def _expanded(module: ir.Module) -> ir.Module:
    global _latest
    found = _latest
    if found is None or found[0] is not module:
        found = _latest = module, expand(module)
    return found[1]


def find_module(image: bytes, *, memcheck: bool = True) -> Found | None:
    """The module that any process has compiled from this PTX before; None if none has, or if the
    module has variables or kernels that cannot run here."""
    settings = Settings(memcheck=memcheck, assume_varying=False, record=False)
    source = _source_of(image)
    key = _key(source, settings)
    record = None if key is None else disk_cache.find(key)
    if record is None:
        return None
    text = Source(image)
    target, version, outlines = parts_of(record)
    kernels = {
        each.name: JitKernel(each, settings, source, partial(text.program, each.name))
        for each in outlines
    }
    return Found(JitModule(kernels, {}, ()), target, version)


def _source_of(image: bytes) -> str:
    return disk_cache.key_of(image.decode("latin-1"))


def _key(source: str, settings: Settings) -> str | None:
    """The key under which outlines are kept; None if nothing is kept."""
    return key_of_compiled("module", source, repr(settings))


def _lowered(
    module: ir.Module, kernel: ir.Function, settings: Settings, source: str | None
) -> JitKernel:
    """The kernel's text; PtxError also for an error that no emitter expected.

    Ill-typed PTX that the parser accepts may fail anywhere in an emitter. For the program it is
    PTX that cannot run here, and the program can react to that at load.
    """
    try:
        program = prepare(module, kernel)
        return JitKernel(outline_of(program), settings, source, lambda: program)
    except PtxError:
        raise
    except Exception as error:
        # An error at an instruction would be a PtxError.
        raise PtxError(
            f"kernel {kernel.name} cannot be lowered ({type(error).__name__}: {error})",
            file=module.file,
            line=kernel.span.line,
            column=kernel.span.column,
        ) from error
