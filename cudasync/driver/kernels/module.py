"""Floor 1. A module: PTX, or CUDA C, loaded on a device, and the kernels in it.

The text is read twice: by our parser, which knows the kernels' parameters and infers what they do
through them, and by the driver, which has the last word. A driver may know more PTX than our
parser; then parameters come from the driver, and what is done through them is unknown.
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
    """What `kernel` makes; a subclass may give another."""

    is_generated = False
    """True for text of this package: who launches its kernels tells exactly what they do."""

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
        # By their names in the PTX, and those that they were asked for by.
        self._kernels: dict[str, Kernel] = {}
        # Of CUDA C: the text, the names in the PTX of its name expressions, and what was compiled
        # for an expression that came later, by that.
        self._cuda: CudaText | None = None
        self._lowered: Mapping[str, str] = {}
        self._instances: dict[str, Self] = {}
        # Once it was asked for elsewhere: until then nothing but its user keeps it.
        self.family: Family | None = None

    @classmethod
    def from_ptx(
        cls, text: str | bytes, *, device: DeviceLike | None = None, file: str = "<ptx>"
    ) -> Self:
        """Load PTX; `file` is what errors call it.

        Raises PtxError with the place when the text is not PTX that this device can run,
        CudaError for any other trouble. (cuModuleLoadDataEx)
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
        """Compile CUDA C with NVRTC and load it.

        `name` is what errors call the text; `options` are NVRTC's ("-DN=4", "--use_fast_math"),
        `include_dirs` are looked through for its headers. `name_expressions` are instances of
        templates that are wanted, as C++ writes them: "scale<float>". The PTX has the lines of the
        CUDA C, for reports, which changes no instruction. `architecture` is a compute
        capability, such as (8, 0), or a name for one, such as "sm_90a": that of the device if it
        is not given. What was compiled before, by whatever process, is found on disk.

        Raises CompileError with the place for what NVRTC refuses, CudasyncError with what to
        install where there is no NVRTC, TypeError and ValueError for what is no text, and what
        `from_ptx` raises. Blocks while NVRTC compiles. (nvrtcCompileProgram)
        """
        folders = tuple(os.fspath(folder) for folder in include_dirs)
        text = CudaText(source, name, with_lines(options), folders, architecture, name_expressions)
        return cls._from_text(text, given_device(device))

    @classmethod
    def of_generated(
        cls, source: str, *, device: Device, name: str, options: Sequence[str] = ()
    ) -> Self:
        """CUDA C of this package, as by `from_cuda`. Who launches its kernels knows what they do,
        so the PTX is read by the driver alone: that is half the time where it was kept on disk."""
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
        """Load a file: CUDA C, as `from_cuda` does, if its name ends in .cu, else PTX.

        Raises FileNotFoundError and its kin, too.
        """
        name = os.fspath(path)
        if name.endswith(".cu"):
            source = Path(path).read_text(encoding="utf-8")
            return cls.from_cuda(source, device=device, name=name)
        return cls.from_ptx(Path(path).read_bytes(), device=device, file=name)

    def loaded_on(self, device: Device) -> Self:
        """The same text, loaded once more, with variables of its own; raises what that raised.

        CUDA C is compiled for that device.
        """
        if self._cuda is not None:
            return self._from_text(self._cuda, device)
        if self._parsed is None:
            # The driver alone has read it, and so it stays.
            raw = load(self.text, device, self.file, None)
            made = type(self)(raw, device, self.text, self.file, None)
            made.is_generated = self.is_generated
            return made
        return self.from_ptx(self.text, device=device, file=self.file)

    def on(self, device: DeviceLike) -> Self:
        """The same text on `device`, loaded there at the first call: itself where it is on.

        Each has variables of its own: what a kernel leaves in one is not seen on other devices.
        """
        on = as_device(device)
        if on is self.device:
            return self
        if self.family is None:
            # Threads that come here together may load it once too often.
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
        """The kernels in the text, in its order; of CUDA C as they are called there."""
        if self._cuda is None:
            return self._symbols
        return tuple(label_of(symbol, self._lowered) for symbol in self._symbols)

    @property
    def _symbols(self) -> tuple[str, ...]:
        """The kernels by their names in the PTX."""
        if self._parsed is not None:
            return tuple(function.name for function in self._parsed.kernels)
        return tuple(re.findall(r"\.entry\s+([\w$%]+)", self.text))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`, the same object each time.

        Of CUDA C that is the kernel's name, if one alone has it, or the expression that names it in
        C++: "scale<float>". An instance of a template that is met first here is compiled and loaded
        now, which takes a source without variables of its own (ValueError): they would be others
        than the module's. `from_cuda(name_expressions=)` takes any.

        Raises ValueError, listing the kernels there are, for any other name; CompileError for an
        expression that names none; PtxError with the place where the kernel alone needs what this
        device has not. (cuModuleGetFunction)
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
        """The kernel's name in the PTX; None if it is an expression that is to be compiled."""
        symbols = self._symbols
        if name in symbols:
            return name
        if self._cuda is not None:
            symbol = symbol_for(name, symbols, self._lowered)
            # A plain name that nobody has may be a template's; C++ would have to be read to tell.
            if symbol is not None or "<" in name:
                return symbol
        names = ", ".join(self.kernel_names) or "none"
        raise ValueError(f"{self.file} has no kernel {name!r}; it has {names}")

    def _instance(self, expression: str) -> Self:
        """What is compiled from the same source for an expression that it was not asked for."""
        key = squeezed(expression)
        known = self._instances.get(key)
        if known is not None:
            return known
        assert self._cuda is not None
        made = self._from_text(self._cuda.of(expression), self.device)
        variables = own_variables(made._parsed)
        if variables is None or variables:
            shared = ", ".join(variables or ("what they are is not known",))
            raise ValueError(
                f"{self.file}: {expression} can not be compiled by itself, since the source has "
                f"variables ({shared}), which would not be those of the other kernels: give "
                f"from_cuda(..., name_expressions=[{expression!r}])"
            )
        return self._instances.setdefault(key, made)

    def _made(self, name: str) -> Kernel:
        """The kernel of this name in the PTX, for the first time."""
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
        """Address and size in bytes of the module's variable; CudaError if it has no such.

        (cuModuleGetGlobal)
        """
        handle = self.get()
        self.device.context.enter()
        found = driver.cuModuleGetGlobal(handle, name.encode())
        start, size_bytes = check(found, "cuModuleGetGlobal")
        return int(start), int(size_bytes)

    def close(self) -> None:
        """Unload the module, on all devices, once no kernel of it runs. Closing twice is harmless.

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
