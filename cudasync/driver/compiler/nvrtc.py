"""Floor 1. NVRTC, NVIDIA's compiler of CUDA C: finds it, queries its abilities, and calls it.

Only this file uses its bindings. They open the library at their first call: from the wheel
nvidia-cuda-nvrtc, or a toolkit. Compilation needs no device, and holds no lock of ours; NVRTC
supports any number of threads, with one program each.

NVRTC has locks of its own. In a child that was forked while another thread was inside, such a lock
stays taken for ever: there every call that could need it raises CudasyncError.
"""

from __future__ import annotations

import importlib
import os
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import TYPE_CHECKING, Any

import cuda.bindings

from cudasync.driver.compiler.diagnostics import compile_error
from cudasync.errors import CompileError, CudasyncError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The calls under way, each with its thread.
_calls: dict[object, int] = {}
# True in a child that was forked during a call of another thread.
_is_stuck = False


@contextmanager
def _inside() -> Iterator[None]:
    """Around each call that may take a lock of NVRTC, or of the import of its bindings."""
    if _is_stuck:
        raise CudasyncError(
            "this process was forked while another thread compiled CUDA C, so it cannot compile: "
            "start processes with multiprocessing.get_context('spawn')"
        )
    call = object()
    try:
        _calls[call] = get_ident()
        yield
    finally:
        _calls.pop(call, None)


def _after_fork_in_child() -> None:
    global _is_stuck
    _is_stuck = _is_stuck or any(thread != get_ident() for thread in _calls.values())
    _calls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def version() -> tuple[int, int]:
    """NVRTC's version. Raises CudasyncError with the package to install if there is no NVRTC."""
    return _found()[1]


@cache
def _found() -> tuple[Any, tuple[int, int]]:
    """The bindings with their library loaded, and its version; a failure is not remembered."""
    try:
        with _inside():
            nvrtc = importlib.import_module("cuda.bindings.nvrtc")
            answer = nvrtc.nvrtcVersion()
    except CudasyncError:
        raise
    # The type of the error differs between releases: RuntimeError, OSError and others.
    except Exception as error:
        raise CudasyncError(_not_found()) from error
    if answer[0]:
        raise CudasyncError(f"nvrtcVersion: {answer[0].name}")
    return nvrtc, (int(answer[1]), int(answer[2]))


def _not_found() -> str:
    # The bindings of CUDA 12 look for NVRTC 12 only. From 13 on the wheel's name has no version.
    release = str(cuda.bindings.__version__)
    wheel = "nvidia-cuda-nvrtc-cu12" if release.startswith("12.") else "nvidia-cuda-nvrtc"
    return f"CUDA C needs NVRTC, and cuda-bindings {release} finds none: pip install {wheel}"


@cache
def architectures() -> tuple[int, ...]:
    """The architectures that this NVRTC supports, ascending: 90 for compute capability 9.0.

    (nvrtcGetSupportedArchs)
    """
    nvrtc, _ = _found()
    with _inside():
        code, known = nvrtc.nvrtcGetSupportedArchs()
    if code:
        raise CudasyncError(f"nvrtcGetSupportedArchs: {code.name}")
    return tuple(sorted(known))


@cache
def toolkit_headers() -> tuple[str, ...]:
    """The folders of CUDA's own headers, such as cuda_fp16.h: of a toolkit, or of the wheel
    nvidia-cuda-runtime. Empty without either, or with bindings that cannot search for them."""
    try:
        found = importlib.import_module("cuda.pathfinder").find_nvidia_header_directory("cudart")
    except (ImportError, AttributeError, RuntimeError):
        return ()
    folders = () if found is None else (found, os.path.join(found, "cccl"))
    return tuple(folder for folder in folders if os.path.isdir(folder))


def architecture_for(capability: tuple[int, int]) -> str:
    """The best architecture for a device of this compute capability: "compute_90".

    This is the newest one that is not newer than the device, since PTX also runs on later devices.
    Raises CudasyncError for a device older than all that this NVRTC knows.
    """
    major, minor = capability
    known = [each for each in architectures() if each <= 10 * major + minor]
    if not known:
        oldest = "{}.{}".format(*divmod(architectures()[0], 10))
        raise CudasyncError(
            f"NVRTC {'{}.{}'.format(*version())} compiles for compute capability {oldest} and "
            f"later: {major}.{minor} needs an older NVRTC"
        )
    return f"compute_{known[-1]}"


def compile_program(
    source: str, name: str, options: Sequence[str], expressions: Sequence[str]
) -> tuple[str, Mapping[str, str], str]:
    """PTX, the lowered name of each expression, and the log, which holds warnings.

    Raises CompileError. Blocks for as long as compiling takes, some 20 ms at least.
    """
    nvrtc, _ = _found()
    with _inside():
        return _compiled(nvrtc, source, name, options, expressions)


def _compiled(
    nvrtc: Any, source: str, name: str, options: Sequence[str], expressions: Sequence[str]
) -> tuple[str, Mapping[str, str], str]:
    made = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    program = _check(made, "nvrtcCreateProgram")
    try:
        for expression in expressions:
            added = nvrtc.nvrtcAddNameExpression(program, expression.encode())
            _check(added, "nvrtcAddNameExpression")
        given = [option.encode() for option in options]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        log = _text_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if code:
            raise compile_error(log, code.name, source=source, name=name)
        ptx = _text_of(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        if not ptx:
            raise CompileError(
                "these options produce no PTX: leave -dlto and other output options out",
                file=name,
                log=log,
            )
        lowered = {}
        for expression in expressions:
            answer = nvrtc.nvrtcGetLoweredName(program, expression.encode())
            lowered[expression] = str(_check(answer, "nvrtcGetLoweredName").decode())
        return ptx, lowered, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text_of(size_of: Any, get: Any, program: Any) -> str:
    buffer = bytearray(_check(size_of(program), size_of.__name__))
    _check(get(program, buffer), get.__name__)
    return buffer.partition(b"\0")[0].decode(errors="replace").strip("\n")


def _check(answer: Any, call: str) -> Any:
    if answer[0]:
        raise CudasyncError(f"{call}: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None
