"""Cellar. Operations on modules: the verbs behind the driver's calls.

PTX is parsed and lowered when it is loaded, so that an invalid text is refused then, with its line.
An unsupported kernel is refused when it is requested by name, and when its handle is used; the
other kernels of its module run. Equal texts are compiled once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync import late
from cudasync.errors import PtxError
from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.lru_cache import Remembered
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_PTX,
    NO_BINARY_FOR_GPU,
    NOT_FOUND,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.modules.module_images import kind_of
from cudasync.softgpu.core.modules.modules import (
    Function,
    Library,
    LibraryKernel,
    Module,
    RefusedFunction,
    Source,
    initial_bytes,
)
from cudasync.softgpu.core.modules.size_limits import check_sizes, excess

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.interface.launch import Compile, CompiledKernel, CompiledModule, Find

# Formats of images: most modules are PTX texts.
if TYPE_CHECKING:
    from cudasync.softgpu.core import fat_binaries as _fat_binaries
else:
    _fat_binaries = late.Module("cudasync.softgpu.core.fat_binaries")

_COMPILED_TEXTS: Final = 64
# The number of names in the message about a missing kernel.
_MOST_NAMES: Final = 8


class ModuleManager:
    """All modules, libraries and functions of a machine."""

    def __init__(self, machine: Machine, compile_module: Compile, find_module: Find) -> None:
        self._machine = machine
        self._compile = compile_module
        self._find = find_module
        self._modules = self.loaded = Handles[Module]("module")
        self._libraries = self.libraries = Handles[Library]("library")
        self._functions: Handles[Function | LibraryKernel | RefusedFunction] = Handles("function")
        # For hot look-ups at every launch, with `function` as the slow path.
        self.live_functions = self._functions.objects
        self._compiled: Remembered[bytes, tuple[Source, CompiledModule]] = Remembered(
            _COMPILED_TEXTS
        )
        # Recordable twins of kernels, by the identity of their modules.
        self._recordable: Remembered[
            tuple[int, str, tuple[bool, ...]], tuple[CompiledModule, CompiledModule]
        ] = Remembered(4 * _COMPILED_TEXTS)

    # Finding

    def get(self, handle: int) -> Module:
        """The module of a handle, on a usable context."""
        module = self._modules.get(handle)
        self._machine.check(module.context)
        return module

    def library(self, handle: int) -> Library:
        """The library of a handle."""
        return self._libraries.get(handle)

    def library_kernel(self, handle: int) -> LibraryKernel:
        """The library kernel of a handle."""
        found = self._functions.get(handle)
        if not isinstance(found, LibraryKernel):
            raise DriverFailure(INVALID_HANDLE, f"{handle:#x} is a function, not a kernel")
        return found

    def function(self, handle: int, context: Context | None = None) -> Function:
        """The function of a handle; for a library kernel, in `context` or the current context.

        DriverFailure with the reason if it cannot run here.
        """
        found = self._functions.get(handle)
        if isinstance(found, Function):
            return found
        if isinstance(found, RefusedFunction):
            raise refusal(found.problem)
        return self._function_in(found, context or self._machine.context())

    def entry(self, handle: int) -> Function | RefusedFunction:
        """The function of a handle, also if it cannot run here."""
        found = self._functions.get(handle)
        if not isinstance(found, LibraryKernel):
            return found
        module = self.module_of(found.library, self._machine.context())
        return module.refused.get(found.name) or module.functions[found.name]

    def kernel_of(self, function: Function) -> LibraryKernel | None:
        """The library kernel of a function; None if the function is a module's own."""
        library = self.library_of(function.module)
        return library.kernels.get(function.name) if library else None

    def library_of(self, module: Module) -> Library | None:
        """The library whose module in a context this is; None if the program loaded the module."""
        for library in self._libraries:
            if library.modules.get(module.context) is module:
                return library
        return None

    def _function_in(self, kernel: LibraryKernel, context: Context) -> Function:
        function = self.find_function(self.module_of(kernel.library, context), kernel.name)
        limit = kernel.dynamic_shared_limit
        if limit is not None and limit != function.dynamic_shared_limit:
            function.allow_dynamic_shared(limit)
        return function

    # Loading

    def load(self, image: bytes) -> Module:
        """Load PTX, or a fat binary with PTX, into the current context, once it is idle."""
        context = self._machine.context()
        text, compiled = self._translate(image)
        # As on an H200: a program that releases running work only after a load hangs there.
        self._machine.streams.synchronize_context(context)
        return self._enter(context, text, compiled)

    def load_library(self, image: bytes) -> Library:
        """Load PTX, or a fat binary with PTX, for any context."""
        library = Library(*self._translate(image))
        self._libraries.add(library.handle, library)
        for kernel in library.kernels.values():
            self._functions.add(kernel.handle, kernel)
        return library

    def module_of(self, library: Library, context: Context) -> Module:
        """A library's module in a context, loaded at first use."""
        module = library.modules.get(context)
        if module is None:
            made = self._enter(context, library.text, library.compiled)
            module = library.modules.setdefault(context, made)
            if module is not made:
                # Another thread was faster; kernels may have written its module's variables.
                self._remove(made)
        return module

    def _translate(self, image: bytes) -> tuple[Source, CompiledModule]:
        if _fat_binaries.is_container(image):
            image = _fat_binaries.select_ptx(image, self._machine.capability)
        binary = kind_of(image)
        if binary is not None:
            raise DriverFailure(
                NO_BINARY_FOR_GPU,
                f"the image is {binary}; the software GPU runs PTX only: compile to PTX",
            )
        found = self._compiled.get(image)
        if found is None:
            try:
                found = self._kept(image) or self._compiled_now(image)
            except PtxError as problem:
                raise refusal(problem) from problem
            except DriverFailure:
                raise
            except Exception as problem:
                # A bug of ours, but still an error that a program can handle.
                why = f"ptxas fatal   : the module cannot be compiled ({problem!r})"
                raise DriverFailure(INVALID_PTX, why) from problem
            found = self._compiled.add(image, found)
        return found

    def _kept(self, image: bytes) -> tuple[Source, CompiledModule] | None:
        """The module compiled by an earlier process, if it is cached on disk."""
        machine = self._machine
        found = None if machine.record else self._find(image, memcheck=machine.memcheck)
        if found is None or excess(found.version, found.compiled) is not None:
            # A module that is refused was kept before: its text has the place for the refusal.
            return None
        machine.capability.check_target(found.target)
        return Source(image, found.target), found.compiled

    def _compiled_now(self, image: bytes) -> tuple[Source, CompiledModule]:
        # Imported late, because many programs load no PTX.
        from cudasync.ptx import parse

        source, machine = parse(image), self._machine
        machine.capability.check_target(source.target)
        compiled = self._compile(
            source, memcheck=machine.memcheck, record=machine.record, image=image
        )
        check_sizes(source, compiled)
        return Source(image, source.target, source), compiled

    def recordable(
        self,
        function: Function,
        *,
        record: bool = True,
        races: bool = False,
        convergence: bool = False,
        reads: bool = True,
        windows: bool = False,
    ) -> CompiledKernel | None:
        """The same kernel, compiled so that its launches can be recorded; None if it cannot be.

        With `races`, races between its threads can be found. With `convergence`, it reports which
        threads come to barriers. With `windows`, it finds reads of unwritten shared and local
        memory. Without `record`, its accesses are not recorded; without `reads`, plain loads need
        not be.
        """
        machine, module = self._machine, function.module
        if machine.record and not races and not convergence and not windows:
            return function.kernel
        key = id(module.compiled), function.name, (record, races, convergence, reads, windows)
        found = self._recordable.get(key)
        if found is None:
            try:
                twin = self._compile(
                    module.source,
                    memcheck=machine.memcheck,
                    record=record,
                    races=races,
                    convergence=convergence,
                    reads=reads,
                    windows=windows,
                    units=record,
                    only=function.name,
                )
            except PtxError:
                return None
            # Kept with the original, so that no other object gets the original's identity.
            found = self._recordable.add(key, (module.compiled, twin))
        return found[1].kernels.get(function.name)

    def _enter(self, context: Context, text: Source, compiled: CompiledModule) -> Module:
        variables: dict[str, Allocation] = {}
        for variable in compiled.variables:
            if variable.is_extern:
                raise DriverFailure(
                    INVALID_PTX, f"ptxas fatal   : Unresolved extern variable '{variable.name}'"
                )
            made = self._machine.memory.allocate(
                context.device.memory, max(1, variable.size), MemoryKind.VARIABLE, context=context
            )
            made.name = variable.name
            variables[variable.name] = made
        addresses = {name: made.start for name, made in variables.items()}
        for variable in compiled.variables:
            start, data = addresses[variable.name], initial_bytes(variable, addresses)
            ctypes.memmove(start, data, len(data))
            ctypes.memset(start + len(data), 0, variable.size - len(data))
        module = Module(context, text, compiled, variables)
        context.modules.add(module)
        self._modules.add(module.handle, module)
        for function in module.entries:
            self._functions.add(function.handle, function)
        return module

    # Symbols

    def find_function(self, module: Module, name: str) -> Function:
        """The kernel called `name`; DriverFailure if there is none, or it cannot run here."""
        function = module.functions.get(name)
        if function is None:
            if name in module.refused:
                raise refusal(module.refused[name].problem)
            raise _absent(f"the module has no kernel {name!r}", module.compiled)
        return function

    def find_kernel(self, library: Library, name: str) -> LibraryKernel:
        """The kernel called `name`; DriverFailure if there is none, or it cannot run here."""
        if name in library.compiled.refused:
            raise refusal(library.compiled.refused[name])
        kernel = library.kernels.get(name)
        if kernel is None:
            raise _absent(f"the library has no kernel {name!r}", library.compiled)
        return kernel

    def find_variable(self, module: Module, name: str) -> Allocation:
        """The memory of the variable called `name`."""
        variable = module.variables.get(name)
        if variable is None:
            raise DriverFailure(NOT_FOUND, f"the module has no variable {name!r}")
        return variable

    # Unloading

    def unload(self, handle: int) -> None:
        """cuModuleUnload: waits for the context's work, then ends the module."""
        executor = self._machine.executor
        if executor.deferred.put_off(lambda: self.unload(handle)):
            return
        module = self.get(handle)
        if self.library_of(module):
            raise DriverFailure(
                NOT_PERMITTED, "the module belongs to a library: unload the library instead"
            )
        self._machine.streams.synchronize_context(module.context)
        self._remove(module)

    def unload_library(self, handle: int) -> None:
        """cuLibraryUnload: in every context."""
        executor = self._machine.executor
        if executor.deferred.put_off(lambda: self.unload_library(handle)):
            return
        library = self._libraries.remove(handle)
        for kernel in library.kernels.values():
            self._functions.discard(kernel.handle)
        for module in list(library.modules.values()):
            if not module.context.error and module in module.context.modules:
                self._machine.streams.synchronize_context(module.context)
                self._remove(module)

    def _remove(self, module: Module) -> None:
        self._modules.discard(module.handle)
        module.context.modules.discard(module)
        for function in module.entries:
            self._functions.discard(function.handle)
        references = self._machine.made.get("references")
        if references is not None:
            references.module_ended(module)
        for allocation in module.variables.values():
            self._machine.memory.end(allocation)

    def forget(self, context: Context) -> None:
        """Drop the modules of an ending context; their memory goes with the context."""
        for module in list(context.modules):
            self._modules.discard(module.handle)
            for function in module.entries:
                self._functions.discard(function.handle)
        for library in self._libraries:
            library.modules.pop(context, None)


def _absent(problem: str, compiled: CompiledModule) -> DriverFailure:
    """NOT_FOUND for a missing kernel, with the names of the kernels that exist."""
    found = sorted({*compiled.kernels, *compiled.refused})
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    listed = ", ".join(found[:_MOST_NAMES])
    return DriverFailure(NOT_FOUND, f"{problem}: it has {listed or 'none'}{more}")


def refusal(problem: PtxError) -> DriverFailure:
    """The failure of a use of what cannot run here."""
    # Imported late, because the forms of PTX are needed for a refusal only.
    from cudasync.softgpu.semantics.unsupported_instructions import NotSupportedError

    code = NOT_SUPPORTED if isinstance(problem, NotSupportedError) else INVALID_PTX
    return DriverFailure(code, _log_line(problem))


def _log_line(problem: PtxError) -> str:
    """The message in the form of ptxas, which clients can display."""
    text = f"{problem.message}: {problem.instruction}" if problem.instruction else problem.message
    if not problem.line:
        return f"ptxas fatal   : {text}"
    return f"ptxas application ptx input, line {problem.line}; error   : {text}"
