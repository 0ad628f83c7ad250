"""Floor 1. Loading PTX into the driver, and the driver's refusals as PtxErrors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.result import report_of
from cudasync.errors import CudaError, CudasyncError, PtxError

if TYPE_CHECKING:
    from cudasync.driver.device import Device

_LOG_BYTES = 16384

# Refusals that concern the text: invalid image, no binary for this GPU, invalid PTX, no compiler,
# unsupported PTX version, invalid source, not supported.
_TEXT_CODES = frozenset({200, 209, 218, 221, 222, 300, 801})

# ptxas application ptx input, line 7; error   : Arguments mismatch for instruction 'add'
_LOG_LINE = re.compile(r"line (\d+); (?:error|fatal)\s*: *(.*)")


def decoded(text: str | bytes, file: str) -> str:
    """The PTX as a string, without the trailing NUL that compilers add."""
    if isinstance(text, str):
        ptx = text
    else:
        raw = bytes(text)
        if raw[:4] == b"\x7fELF":
            raise PtxError(
                "this is an ELF file (perhaps a cubin), not PTX: give PTX text", file=file
            )
        try:
            ptx = raw.decode()
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise PtxError(
                "this is binary data, not PTX: give PTX text", file=file, line=line
            ) from None
    ptx = ptx.rstrip("\0")
    if "\0" in ptx:
        line = ptx.count("\n", 0, ptx.index("\0")) + 1
        raise PtxError("the text contains a NUL character: remove it", file=file, line=line)
    return ptx


def load(ptx: str, device: Device, file: str, objection: PtxError | None) -> Any:
    """The loaded module's handle; `objection` is our parser's error for the text, if any."""
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


def refusal_of_kernel(error: CudasyncError, ptx: str, file: str) -> CudasyncError:
    """The error to raise for the driver's `error` with one kernel: a PtxError for a text error."""
    if not isinstance(error, CudaError) or error.code not in _TEXT_CODES:
        return error
    told = _from_log(report_of(error.code), ptx, file, error)
    told.__cause__ = error
    return told


def _from_log(log: str, ptx: str, file: str, refusal: CudaError) -> PtxError:
    """The first error of the driver's compiler as a PtxError."""
    found = _LOG_LINE.search(log)
    if found is None:
        said = " ".join(log.split())
        return PtxError(f"{said}: {refusal}" if said else str(refusal), file=file)
    line = int(found[1])
    lines = ptx.splitlines()
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    column = len(source) - len(source.lstrip()) + 1
    instruction = source.strip()
    # The error may quote the line: drop the quotation.
    message = found[2].strip().removesuffix(instruction).rstrip(" :")
    return PtxError(message, file=file, line=line, column=column, instruction=instruction)
