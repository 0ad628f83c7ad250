"""Floor 1. `Module`: PTX or CUDA C loaded on a device, and the kernels in it.

The text is read twice. Our parser finds the kernels' parameters and infers the accesses through
them. The driver has the last word. A driver may know more PTX than our parser; then the parameters
come from the driver, and their accesses are unknown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cuda.bindings import driver

from cudasync.driver.compiler.cuda_source import (
    CudaText,
    label_of,
    own_variables,
    squeezed,
    symbol_for,
    with_lines,
)
from cudasync.driver.device import as_device
from cudasync.driver.kernels.kernel import Kernel
from cudasync.driver.kernels.module_family import Family
from cudasync.driver.kernels.module_loading import decoded, load, refusal_of_kernel
from cudasync.driver.kernels.signature import signature_of
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check, failure
from cudasync.driver.streams.current_streams import given_device
from cudasync.errors import PtxError
from cudasync.ptx import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from cudasync.driver.compiler.compilation import Architecture
    from cudasync.driver.device import Device, DeviceLike
    from cudasync.ptx import ir


@unpicklable("send the PTX and load it there with Module.from_ptx")
class Module:
    """PTX loaded on one device. Unloaded when closed, or when nothing refers to it any more."""

    kernel_type: ClassVar[type[Kernel]] = Kernel
    """The class of the kernels that `kernel` makes; a subclass may set another."""

    is_generated = False
    """True for text of this package: a launcher of its kernels knows their exact accesses."""

    def __init__(
        self, handle: Any, device: Device, text: str, file: str, parsed: ir.Module | None
    ) -> None:
        self.device = device
        self.file = file
        self._parsed = parsed
        self.text = text
        self.owned = Owned(
            device.context, handle, driver.cuModuleUnload, noun="module", blocking=True
        )
        # Keyed by the names in the PTX, and by the requested names.
        self._kernels: dict[str, Kernel] = {}
        # For CUDA C: the text, the PTX names of its name expressions, and the modules that were
        # compiled for later expressions, by expression.
        self._cuda: CudaText | None = None
        self._lowered: Mapping[str, str] = {}
        self._instances: dict[str, Self] = {}
        # Set once the module was requested on another device; until then only its user keeps it.
        self.family: Family | None = None

    @classmethod
    def from_ptx(
        cls, text: str | bytes, *, device: DeviceLike | None = None, file: str = "<ptx>"
    ) -> Self:
        """Load PTX; errors call the text `file`. Blocks until the device is idle, as all loading.

        Raises PtxError with the place if the text is not PTX that this device can run, CudaError
        for any other failure. (cuModuleLoadDataEx)
        """
        ptx = decoded(text, file)
        on = given_device(device)
        parsed: ir.Module | None = None
        objection: PtxError | None = None
        try:
            parsed = parse(ptx, file)
        except PtxError as error:
            objection = error
        handle = load(ptx, on, file, objection)
        return cls(handle, on, ptx, file, parsed)

    @classmethod
    def from_cuda(
        cls,
        source: str,
        *,
        device: DeviceLike | None = None,
        name: str = "<cuda>",
        options: Sequence[str] = (),
        include_dirs: Sequence[str | os.PathLike[str]] = (),
        name_expressions: Sequence[str] = (),
        architecture: Architecture | None = None,
    ) -> Self:
        """Compile CUDA C with NVRTC and load it. Blocks until the device is idle.

        Errors call the text `name`; `options` are NVRTC's ("-DN=4", "--use_fast_math"). NVRTC
        searches `include_dirs` for headers. `name_expressions` are the wanted template instances
        in C++ syntax: "scale<float>". The PTX has the lines of the CUDA C, for reports, which
        changes no instruction. `architecture` is a compute capability, such as (8, 0), or a name
        for one, such as "sm_90a"; the default is the device's. Code that any process compiled
        before is found on disk.

        Raises CompileError with the place for source that NVRTC refuses; CudasyncError with the
        package to install if there is no NVRTC; TypeError and ValueError for invalid text; and the
        errors of `from_ptx`. Blocks while NVRTC compiles. (nvrtcCompileProgram)
        """
        folders = tuple(os.fspath(folder) for folder in include_dirs)
        text = CudaText(source, name, with_lines(options), folders, architecture, name_expressions)
        return cls._from_text(text, given_device(device))

    @classmethod
    def of_generated(
        cls, source: str, *, device: Device, name: str, options: Sequence[str] = ()
    ) -> Self:
        """CUDA C of this package, as by `from_cuda`. A launcher of its kernels knows their
        accesses, so only the driver reads the PTX: half the time if the PTX was kept on disk."""
        compiled = CudaText(source, name, options, (), None, ()).compiled(device)
        made = cls(load(compiled.ptx, device, name, None), device, compiled.ptx, name, None)
        made.is_generated = True
        return made

    @classmethod
    def _from_text(cls, text: CudaText, device: Device) -> Self:
        compiled = text.compiled(device)
        made = cls.from_ptx(compiled.ptx, device=device, file=text.name)
        made._cuda, made._lowered = text, compiled.lowered
        return made

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, device: DeviceLike | None = None) -> Self:
        """Load a file: CUDA C, as `from_cuda` does, if its name ends in .cu, else PTX. Blocks until
        the device is idle.

        Raises FileNotFoundError and other OSErrors, too.
        """
        name = os.fspath(path)
        if name.endswith(".cu"):
            source = Path(path).read_text(encoding="utf-8")
            return cls.from_cuda(source, device=device, name=name)
        return cls.from_ptx(Path(path).read_bytes(), device=device, file=name)

    def loaded_on(self, device: Device) -> Self:
        """The same text, loaded once more, with its own variables. Raises the errors of loading.

        CUDA C is compiled for that device.
        """
        if self._cuda is not None:
            return self._from_text(self._cuda, device)
        if self._parsed is None:
            # Only the driver has read the text, and our parser is not tried again.
            raw = load(self.text, device, self.file, None)
            made = type(self)(raw, device, self.text, self.file, None)
            made.is_generated = self.is_generated
            return made
        return self.from_ptx(self.text, device=device, file=self.file)

    def on(self, device: DeviceLike) -> Self:
        """The same text on `device`, loaded there at the first call, which blocks until that device
        is idle; itself on its own device.

        Each has its own variables: values that a kernel stores are not seen on other devices.
        """
        on = as_device(device)
        if on is self.device:
            return self
        if self.family is None:
            # Concurrent threads may load it more than once.
            self.family = Family(self)
        found: Self = self.family.on(on)
        return found

    def get(self) -> Any:
        """The driver's CUmodule. Raises ClosedError once closed."""
        return self.owned.get()

    @property
    def is_closed(self) -> bool:
        return self.owned.is_closed

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels in the order of the text; for CUDA C, by their names there."""
        if self._cuda is None:
            return self._symbols
        return tuple(label_of(symbol, self._lowered) for symbol in self._symbols)

    @property
    def _symbols(self) -> tuple[str, ...]:
        """The kernels' names in the PTX."""
        if self._parsed is not None:
            return tuple(function.name for function in self._parsed.kernels)
        return tuple(re.findall(r"\.entry\s+([\w$%]+)", self.text))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`, the same object each time.

        For CUDA C this is the kernel's plain name, if it is unique, or its C++ expression:
        "scale<float>". A template instance first named here is compiled and loaded now, which
        blocks until the device is idle. That needs
        a source without variables (else ValueError), because the instance would not share the
        module's variables. `from_cuda(name_expressions=)` takes any source.

        Raises ValueError, listing the kernels, for any other name; CompileError for an expression
        that names no kernel; PtxError with the place if the kernel needs a feature that this device
        lacks. (cuModuleGetFunction)
        """
        known = self._kernels.get(name)
        if known is not None:
            return known
        self.get()
        symbol = self._symbol(name)
        if symbol is None:
            found = self._instance(name).kernel(name)
        else:
            found = self._kernels.get(symbol) or self._made(symbol)
        return self._kernels.setdefault(name, found)

    def _symbol(self, name: str) -> str | None:
        """The kernel's name in the PTX; None for an expression that must be compiled."""
        symbols = self._symbols
        if name in symbols:
            return name
        if self._cuda is not None:
            symbol = symbol_for(name, symbols, self._lowered)
            # An unknown plain name may be a template's; only a C++ parser could tell.
            if symbol is not None or "<" in name:
                return symbol
        names = ", ".join(self.kernel_names) or "none"
        raise ValueError(f"{self.file} has no kernel {name!r}; it has {names}")

    def _instance(self, expression: str) -> Self:
        """A module compiled from the same source for a later expression."""
        key = squeezed(expression)
        known = self._instances.get(key)
        if known is not None:
            return known
        assert self._cuda is not None
        made = self._from_text(self._cuda.of(expression), self.device)
        variables = own_variables(made._parsed)
        if variables is None or variables:
            shared = ", ".join(variables or ("none that can be listed",))
            raise ValueError(
                f"{self.file}: {expression} cannot be compiled separately, because it would get "
                f"its own copy of the source's variables ({shared}): give from_cuda(..., "
                f"name_expressions=[{expression!r}])"
            )
        return self._instances.setdefault(key, made)

    def _made(self, name: str) -> Kernel:
        """Make the kernel with this name in the PTX."""
        handle = self.get()
        self.device.context.enter()
        function = self._function(handle, name)
        parameters, symbols, beyond = signature_of(self._parsed, name, function)
        made = self.kernel_type(self, name, function, parameters, symbols, beyond)
        if self._cuda is not None:
            made.label = label_of(name, self._lowered)
        return self._kernels.setdefault(name, made)

    def _function(self, handle: Any, name: str) -> Any:
        answer = driver.cuModuleGetFunction(handle, name.encode())
        if answer[0]:
            raise refusal_of_kernel(failure(answer[0], "cuModuleGetFunction"), self.text, self.file)
        return answer[1]

    def variable_place(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a module variable. Raises CudaError for an unknown name.

        (cuModuleGetGlobal)
        """
        handle = self.get()
        self.device.context.enter()
        found = driver.cuModuleGetGlobal(handle, name.encode())
        start, size_bytes = check(found, "cuModuleGetGlobal")
        return int(start), int(size_bytes)

    def close(self) -> None:
        """Unload the module on all devices, once none of its kernels runs. Repeatable.

        (cuModuleUnload)
        """
        if not self.owned.is_closed:
            self.device.synchronize()
        self.owned.close()
        for each in self._instances.copy().values():
            each.close()
        if self.family is not None:
            self.family.close()

    def __repr__(self) -> str:
        return f"<Module {self.file} on {self.device!r}>"
