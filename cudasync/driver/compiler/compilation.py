"""Floor 1. CUDA C compiled to PTX, once for all processes.

What NVRTC made is kept on disk by all that it was made of (`cudasync/kept.py`): the text, its name
and options, the files that it may include, the names asked for, and NVRTC's version. Nothing of
ours is in the PTX but the options, so our own version is that of what is written down.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.driver.compiler import nvrtc
from cudasync.driver.compiler.include_files import included
from cudasync.driver.streams.current_streams import given_device
from cudasync.kept import KeptCode, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    # A compute capability, or one as NVRTC names it, for what no number says: "sm_90a".
    Architecture: TypeAlias = tuple[int, int] | str

_FORMAT = "1"
_code = KeptCode("cuda")

# Options, without their dashes, that let NVRTC read or write files that are not includes.
_OF_FILES = frozenset(
    {
        "create-pch", "fdevice-time-trace", "optf", "options-file", "pch", "pch-dir",
        "pch-messages", "time", "use-pch",
    }
)  # fmt: skip
_FOLDER = ("--include-path", "-I")
_AT_ONCE = ("--pre-include", "-include")
_ARCHITECTURE = ("--gpu-architecture", "-arch")


@dataclass(frozen=True, slots=True)
class CompiledCuda:
    """PTX that was compiled from CUDA C; `lowered` has the name in it of each name expression.

    `log` is what NVRTC said: warnings, or "".
    """

    ptx: str
    lowered: Mapping[str, str]
    log: str


def compile_cuda(
    source: str,
    *,
    name: str = "<cuda>",
    architecture: Architecture | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    name_expressions: Sequence[str] = (),
) -> CompiledCuda:
    """Compile CUDA C to PTX, or find it as it was compiled before.

    `name` is what errors call the text, and the path that its own `#include "..."` is looked for
    beside; `architecture` is a compute capability, that of the current device by None, and is
    lowered to what this NVRTC knows; an `options` of `-arch=...` goes before it. `name_expressions`
    are the kernels and variables whose names in the PTX are wanted, templates among them:
    "scale<float>". CUDA's own headers are found if a toolkit, or the wheel nvidia-cuda-runtime,
    is installed.

    Raises CompileError for what NVRTC refuses; CudasyncError, saying what to install, where there
    is no NVRTC; TypeError and ValueError for what is no text. Blocks while NVRTC compiles, and
    waits for no device. (nvrtcCompileProgram)
    """
    _check(source, name, options, name_expressions)
    folders = [os.fspath(folder) for folder in include_dirs]
    # Last, so that what is the program's own goes first. To look for them takes its time.
    has_headers = "include" in source or any(_values(options, _AT_ONCE))
    toolkit = nvrtc.toolkit_headers() if has_headers else ()
    given = [*options, *(f"--include-path={folder}" for folder in (*folders, *toolkit))]
    if not any(_values(options, _ARCHITECTURE)):
        given.append(f"--gpu-architecture={_named(architecture)}")
    key = _key(source, name, given, name_expressions, toolkit)
    record = None if key is None else _code.find(key)
    if record is not None:
        return CompiledCuda(**json.loads(record))
    ptx, lowered, log = nvrtc.compile_program(source, name, given, name_expressions)
    if key is not None:
        _code.keep(key, json.dumps({"ptx": ptx, "lowered": lowered, "log": log}).encode())
    return CompiledCuda(ptx, lowered, log)


def _check(source: str, name: str, options: Sequence[str], expressions: Sequence[str]) -> None:
    if not isinstance(source, str):
        raise TypeError(f"CUDA C is a str, not {type(source).__name__}")
    for what, texts in (("options", options), ("name_expressions", expressions)):
        if isinstance(texts, str | bytes) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{what} is a sequence of str, not {texts!r}")
    for what, text in (
        ("the CUDA C", source),
        ("its name", name),
        *(("an option", option) for option in options),
        *(("a name expression", expression) for expression in expressions),
    ):
        if "\0" in text:
            raise ValueError(f"there is a NUL character in {what}")


def _named(architecture: Architecture | None) -> str:
    if isinstance(architecture, str):
        return architecture
    capability = architecture or given_device(None).compute_capability
    if not isinstance(capability, tuple) or [type(each) for each in capability] != [int, int]:
        raise TypeError(
            "architecture is a compute capability, (8, 0), or a name for one, 'sm_90a', "
            f"not {architecture!r}"
        )
    return nvrtc.architecture_for(capability)


def _key(
    source: str,
    name: str,
    given: Sequence[str],
    expressions: Sequence[str],
    toolkit: Sequence[str],
) -> str | None:
    """The name of what is kept for this; None where nothing may be."""
    version = nvrtc.version()
    for option in given:
        if option.lstrip("-").partition("=")[0] in _OF_FILES:
            return None
    digest = included(
        source,
        os.path.dirname(name),
        [*_values(given, _FOLDER)],
        at_once=[*_values(given, _AT_ONCE)],
        installed=toolkit,
    )
    if digest is None:
        return None
    return key_of(
        "cuda", _FORMAT, "{}.{}".format(*version), name, source, digest,
        f"{len(given)}", *given, *expressions,
    )  # fmt: skip


def _values(options: Sequence[str], names: tuple[str, str]) -> Iterator[str]:
    """What is given for an option: `--long=value`, `-s=value`, `-s value`, and for -I `-Ivalue`."""
    awaited = False
    for option in options:
        head, equals, value = option.partition("=")
        if awaited:
            awaited = False
            yield option
        elif head in names and equals:
            yield value
        elif option in names:
            awaited = True
        elif "-I" in names and option.startswith("-I"):
            yield option[2:]
