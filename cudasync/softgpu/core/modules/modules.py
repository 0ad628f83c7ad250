"""Cellar. Modules, functions and libraries: compiled PTX, and its variables in memory.

A module belongs to one context, and has its own copy of the PTX's variables there. A library
belongs to no context: it becomes a module in each context that uses one of its kernels. Both share
the compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.device_limits import MAX_SHARED_BYTES
from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.modules.parameter_packing import Packing
from cudasync.softgpu.interface import pending_launches
from cudasync.softgpu.interface.printf_buffer import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.errors import PtxError
    from cudasync.ptx import ir
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.launch.kernel_launch import Plan
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.launchable import Launchable
    from cudasync.softgpu.interface.launch import CompiledKernel, CompiledModule


class Source:
    """PTX for a `target` as it was loaded; `parsed` parses it at first use."""

    __slots__ = ("_image", "_parsed", "target")

    def __init__(self, image: bytes, target: str, parsed: ir.Module | None = None) -> None:
        self._image = image
        self.target = target
        self._parsed = parsed

    @property
    def parsed(self) -> ir.Module:
        """The parsed module. Two threads may parse at once; their results are equal."""
        found = self._parsed
        if found is None:
            # Imported late, because kept code needs no parser.
            from cudasync.ptx import parse

            found = self._parsed = parse(self._image)
        return found


class Function:
    """One kernel of a module, with its settable attributes."""

    __slots__ = (
        "carveout",
        "dynamic_shared_limit",
        "handle",
        "kernel",
        "module",
        "packing",
        "places",
        "plan",
    )

    def __init__(self, module: Module, kernel: CompiledKernel) -> None:
        self.module = module
        self.kernel = kernel
        self.handle = new_handle()
        self.dynamic_shared_limit = max(0, MAX_SHARED_BYTES - kernel.static_shared_bytes)
        # The preferred part of shared memory: stored, without an effect.
        self.carveout = -1
        # The plan of the last launch; None once its bounds may have changed.
        self.plan: Plan | None = None
        # For each parameter: its offset in the parameter block, and its size.
        self.places = tuple(zip(kernel.parameter_offsets, kernel.parameter_sizes, strict=True))
        self.packing = Packing(kernel.name, self.places, kernel.parameter_size)

    @property
    def name(self) -> str:
        return self.kernel.name

    def allow_dynamic_shared(self, size_bytes: int) -> None:
        """cuFuncSetAttribute MAX_DYNAMIC_SHARED_SIZE_BYTES; DriverFailure if it is too much."""
        has = self.module.context.device.capability
        most = has.shared_bytes_optin - self.kernel.static_shared_bytes
        if not 0 <= size_bytes <= most:
            raise DriverFailure(
                INVALID_VALUE,
                f"kernel {self.name} may have at most {most} bytes of dynamic shared memory, "
                f"not {size_bytes}",
            )
        self.dynamic_shared_limit = size_bytes
        self.plan = None


class RefusedFunction:
    """A kernel that cannot run here: it has a handle and a name, and its use is refused."""

    __slots__ = ("handle", "module", "name", "problem")

    plan = None
    """Always None: see `Function`."""

    def __init__(self, module: Module, name: str, problem: PtxError) -> None:
        self.module = module
        self.name = name
        self.problem = problem
        self.handle = new_handle()


class Module:
    """PTX loaded into a context."""

    __slots__ = (
        "compiled",
        "context",
        "functions",
        "handle",
        "launchable",
        "output",
        "refused",
        "symbols",
        "text",
        "variables",
    )

    def __init__(
        self,
        context: Context,
        text: Source,
        compiled: CompiledModule,
        variables: Mapping[str, Allocation],
    ) -> None:
        self.context = context
        self.text = text
        self.compiled = compiled
        self.variables = variables
        self.handle = new_handle()
        # The printf buffer of its kernels, if any kernel prints.
        self.output = variables.get(VARIABLE)
        self.symbols = tuple(variables[v.name].start for v in compiled.variables)
        self.functions = {name: Function(self, kernel) for name, kernel in compiled.kernels.items()}
        self.refused = {
            name: RefusedFunction(self, name, problem) for name, problem in compiled.refused.items()
        }
        # What its kernels may launch, if any kernel launches kernels.
        self.launchable: Launchable | None = None
        if pending_launches.VARIABLE in variables:
            # Imported late, because most modules launch nothing.
            from cudasync.softgpu.core.modules.launchable import Launchable

            self.launchable = Launchable(self)

    @property
    def source(self) -> ir.Module:
        """The PTX, parsed."""
        return self.text.parsed

    @property
    def entries(self) -> tuple[Function | RefusedFunction, ...]:
        """All kernels, in the order of the text."""
        both: dict[str, Function | RefusedFunction] = {**self.functions, **self.refused}
        return tuple(both[name] for name in names_of_kernels(self.compiled, self.text))


class Library:
    """PTX loaded for any context."""

    __slots__ = ("compiled", "handle", "kernels", "modules", "text")

    def __init__(self, text: Source, compiled: CompiledModule) -> None:
        self.text = text
        self.compiled = compiled
        self.handle = new_handle()
        self.modules: dict[Context, Module] = {}
        self.kernels = {
            name: LibraryKernel(self, name) for name in names_of_kernels(compiled, text)
        }


class LibraryKernel:
    """One kernel of a library; its function depends on the context."""

    __slots__ = ("dynamic_shared_limit", "handle", "library", "name")

    plan = None
    """Always None: see `Function`."""

    def __init__(self, library: Library, name: str) -> None:
        self.library = library
        self.name = name
        self.handle = new_handle()
        # Applies to all contexts, also later ones.
        self.dynamic_shared_limit: int | None = None


def names_of_kernels(compiled: CompiledModule, text: Source) -> list[str]:
    """The names of compiled and refused kernels, in the order of the text."""
    if not compiled.refused:
        # The compiled kernels are in the order of the text.
        return list(compiled.kernels)
    there = {*compiled.kernels, *compiled.refused}
    return [each.name for each in text.parsed.kernels if each.name in there]


def initial_bytes(variable: ir.Variable, addresses: Mapping[str, int]) -> bytes:
    """The bytes of a variable's initialiser; the rest of the variable is zero."""
    # Imported late, because many programs load no PTX.
    from cudasync.ptx.ir import Float, Integer, SymbolAddress

    size = variable.type.size
    data = bytearray(len(variable.initial) * size)
    for index, value in enumerate(variable.initial):
        match value:
            case Integer():
                bits = value.value
            case Float():
                bits = value.bits
            case SymbolAddress():
                bits = value.bits(addresses[value.symbol])
        data[index * size : (index + 1) * size] = (bits & (1 << 8 * size) - 1).to_bytes(
            size, "little"
        )
    return bytes(data)
