"""Floor 1. A module: PTX loaded on a device, and the kernels in it.

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

from cudasync.driver.current import given_device
from cudasync.driver.kernel import Kernel
from cudasync.driver.owned import Owned
from cudasync.driver.parameter import Parameter
from cudasync.driver.result import check, failure, report_of
from cudasync.driver.unpicklable import unpicklable
from cudasync.errors import CudaError, PtxError
from cudasync.ptx import parse
from cudasync.ptx.access import Access, analyse
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from typing import Self

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.ptx import ir

_LOG_BYTES = 16384

# Refusals that are about the text: invalid image, no binary for this GPU, invalid PTX, no
# compiler, unsupported PTX version, invalid source, not supported.
_TEXT_CODES = frozenset({200, 209, 218, 221, 222, 300, 801})
_NOT_FOUND = 500

_NOT_READ = "the PTX is newer than what is understood of it"

# ptxas application ptx input, line 7; error   : Arguments mismatch for instruction 'add'
_LOG_LINE = re.compile(r"line (\d+); (?:error|fatal)\s*: *(.*)")


@unpicklable("send the PTX and load it there with Module.from_ptx")
class Module:
    """PTX loaded on one device. Unloaded when closed, or when nothing refers to it any more."""

    kernel_type: ClassVar[type[Kernel]] = Kernel
    """What `kernel` makes; a subclass may give another."""

    def __init__(
        self, handle: Any, device: Device, text: str, file: str, parsed: ir.Module | None
    ) -> None:
        self.device = device
        self.file = file
        self._parsed = parsed
        self._text = text
        self.owned = Owned(
            device.context, handle, driver.cuModuleUnload, noun="module", blocking=True
        )
        self._kernels: dict[str, Kernel] = {}

    @classmethod
    def from_ptx(
        cls, text: str | bytes, *, device: DeviceLike | None = None, file: str = "<ptx>"
    ) -> Self:
        """Load PTX; `file` is what errors call it.

        Raises PtxError with the place when the text is not PTX that this device can run,
        CudaError for any other trouble. (cuModuleLoadDataEx)
        """
        ptx = _decoded(text, file)
        on = given_device(device)
        parsed: ir.Module | None = None
        objection: PtxError | None = None
        try:
            parsed = parse(ptx, file)
        except PtxError as error:
            objection = error
        handle = _load(ptx, on, file, objection)
        return cls(handle, on, ptx, file, parsed)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, device: DeviceLike | None = None) -> Self:
        """Load a file of PTX, as `from_ptx` does. Raises FileNotFoundError and its kin, too."""
        return cls.from_ptx(Path(path).read_bytes(), device=device, file=os.fspath(path))

    def get(self) -> Any:
        """The driver's CUmodule. Raises ClosedError once closed."""
        return self.owned.get()

    @property
    def is_closed(self) -> bool:
        return self.owned.is_closed

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels in the text, in its order."""
        if self._parsed is not None:
            return tuple(function.name for function in self._parsed.kernels)
        return tuple(re.findall(r"\.entry\s+([\w$%]+)", self._text))

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`, the same object each time.

        Raises ValueError, listing the kernels there are, for any other name; PtxError with the
        place where the kernel alone needs what this device has not. (cuModuleGetFunction)
        """
        known = self._kernels.get(name)
        if known is not None:
            return known
        handle = self.get()
        self.device.context.enter()
        if name not in self.kernel_names:
            names = ", ".join(self.kernel_names) or "none"
            raise ValueError(f"{self.file} has no kernel {name!r}; it has {names}")
        function = self._function(handle, name)
        if self._parsed is not None:
            declared = self._parsed.function(name)
            found = analyse(self._parsed, name)
            parameters = tuple(
                Parameter(
                    variable.name,
                    variable.type,
                    variable.size,
                    found.parameters[i],
                    variable.is_array,
                    element=found.elements[i],
                    reason=found.reasons[i],
                    fields=found.fields[i],
                )
                for i, variable in enumerate(declared.parameters)
            )
            symbols, beyond = dict(found.symbols), found.beyond
        else:
            parameters, symbols, beyond = _parameters_by_driver(function), {}, _NOT_READ
        made = self.kernel_type(self, name, function, parameters, symbols, beyond)
        return self._kernels.setdefault(name, made)

    def _function(self, handle: Any, name: str) -> Any:
        try:
            return check(driver.cuModuleGetFunction(handle, name.encode()), "cuModuleGetFunction")
        except CudaError as error:
            if error.code not in _TEXT_CODES:
                raise
            raise _from_log(report_of(error.code), self._text, self.file, error) from error

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
        """Unload the module, once no kernel of it runs. Closing twice is harmless.

        (cuModuleUnload)
        """
        if not self.owned.is_closed:
            self.device.synchronize()
        self.owned.close()

    def __repr__(self) -> str:
        return f"<Module {self.file} on {self.device!r}>"


def _decoded(text: str | bytes, file: str) -> str:
    """The PTX as a string, without the NUL that compilers put behind it."""
    if isinstance(text, str):
        ptx = text
    else:
        raw = bytes(text)
        if raw[:4] == b"\x7fELF":
            raise PtxError("this is an ELF file (a cubin?), not PTX", file=file)
        try:
            ptx = raw.decode()
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise PtxError("this is not text, so not PTX", file=file, line=line) from None
    ptx = ptx.rstrip("\0")
    if "\0" in ptx:
        line = ptx.count("\n", 0, ptx.index("\0")) + 1
        raise PtxError("there is a NUL character in the text", file=file, line=line)
    return ptx


def _load(ptx: str, device: Device, file: str, objection: PtxError | None) -> Any:
    """The loaded module's handle; `objection` is what our parser has against the text."""
    log = bytearray(_LOG_BYTES)
    options = driver.CUjit_option
    names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        return device.context.allocate(
            "cuModuleLoadDataEx",
            driver.cuModuleLoadDataEx,
            ptx.encode() + b"\0",
            len(names),
            names,
            [log, _LOG_BYTES],
        )
    except CudaError as error:
        if error.code not in _TEXT_CODES:
            raise
        if objection is not None:
            raise objection from error
        raise _from_log(
            log.partition(b"\0")[0].decode(errors="replace"), ptx, file, error
        ) from error


def _from_log(log: str, ptx: str, file: str, refusal: CudaError) -> PtxError:
    """The driver's compiler's first complaint as a PtxError."""
    found = _LOG_LINE.search(log)
    if found is None:
        said = " ".join(log.split())
        return PtxError(f"{said}: {refusal}" if said else str(refusal), file=file)
    line = int(found[1])
    lines = ptx.splitlines()
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    column = len(source) - len(source.lstrip()) + 1
    instruction = source.strip()
    # Said once is enough, where the complaint quotes the line.
    message = found[2].strip().removesuffix(instruction).rstrip(" :")
    return PtxError(message, file=file, line=line, column=column, instruction=instruction)


_BITS = {1: ScalarType.B8, 2: ScalarType.B16, 4: ScalarType.B32, 8: ScalarType.B64}


def _parameters_by_driver(function: Any) -> tuple[Parameter, ...]:
    """The parameters as far as cuFuncGetParamInfo tells: their sizes."""
    parameters: list[Parameter] = []
    while True:
        code, _, size = driver.cuFuncGetParamInfo(function, len(parameters))
        if code:
            # Past the last parameter the driver answers CUDA_ERROR_INVALID_VALUE.
            if int(code) == 1:
                return tuple(parameters)
            raise failure(code, "cuFuncGetParamInfo")
        scalar = _BITS.get(size)
        name = f"parameter {len(parameters)}"
        parameters.append(
            Parameter(
                name,
                scalar or ScalarType.B8,
                size,
                Access.UNKNOWN,
                scalar is None,
                reason=_NOT_READ,
            )
        )
