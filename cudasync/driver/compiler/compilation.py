"""Floor 1. Compilation of CUDA C to PTX, once for all processes.

NVRTC's output is kept on disk under a key of all its inputs (`cudasync/kept.py`): the text, its
name and options, the files that it may include, the name expressions, and NVRTC's version. The PTX
contains nothing of ours except the options, so the key has only the record format's version.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.driver.compiler import nvrtc
from cudasync.driver.compiler.include_files import included
from cudasync.driver.streams.current_streams import given_device
from cudasync.kept import KeptCode, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    # A compute capability, or NVRTC's name for one that no number expresses: "sm_90a".
    Architecture: TypeAlias = tuple[int, int] | str

_FORMAT = "2"
_code = KeptCode("cuda")
# A source file that the PTX names, as a string.
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+")((?:[^"\\\n]|\\.)*)', re.MULTILINE)

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
    """PTX compiled from CUDA C; `lowered` has the PTX name of each name expression.

    `log` is NVRTC's log: warnings, or "".
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
    """Compile CUDA C to PTX, or find it compiled on disk.

    Errors call the text `name`, and its `#include "..."` is searched beside that path.
    `architecture` is a compute capability, by default the current device's, and is lowered to one
    that this NVRTC knows; an option `-arch=...` overrides it. `name_expressions` are the kernels
    and variables whose PTX names are wanted, including template instances: "scale<float>". CUDA's
    own headers are found if a toolkit, or the wheel nvidia-cuda-runtime, is installed.

    Raises CompileError for source that NVRTC refuses; CudasyncError, with the package to install,
    if there is no NVRTC; TypeError and ValueError for invalid text. Blocks while NVRTC compiles,
    and waits for no device. (nvrtcCompileProgram)
    """
    _check(source, name, options, name_expressions)
    folders = [os.fspath(folder) for folder in include_dirs]
    # Last, so that the program's own headers come first. The search takes time.
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
    ptx = _with_relative_files(ptx, [*_values(given, _FOLDER), os.path.dirname(name)])
    if key is not None:
        _code.keep(key, json.dumps({"ptx": ptx, "lowered": lowered, "log": log}).encode())
    return CompiledCuda(ptx, lowered, log)


def _with_relative_files(ptx: str, folders: Sequence[str]) -> str:
    """`ptx` with the names of its source files relative to the working folder, as the caller's are.

    NVRTC joins them to the folder of this process, but other processes find the PTX, too. Names in
    `folders` that are absolute were given so, and stay.
    """
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:
        return ptx
    # By the prefix in the PTX: whether the caller's name of the folder is absolute.
    known = {_in_ptx(here): False}
    for each in folders:
        known[_in_ptx(os.path.join(here, each, ""))] = os.path.isabs(each)

    def relative(found: re.Match[str]) -> str:
        start, name = found.groups()
        inside = [each for each in known if name.startswith(each)]
        is_given = bool(inside) and known[max(inside, key=len)]
        return start + (name if is_given else name.removeprefix(_in_ptx(here)))

    return _FILE.sub(relative, ptx)


def _in_ptx(path: str) -> str:
    """A path as NVRTC writes it in a string of PTX."""
    letters = []
    for byte in os.fsencode(path):
        letter = chr(byte)
        letters.append(
            f"\\{letter}" if letter in '"\\' else letter if byte < 128 else f"\\{byte:o}"
        )
    return "".join(letters)


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
            raise ValueError(f"{what} contains a NUL character: remove it")


def _named(architecture: Architecture | None) -> str:
    if isinstance(architecture, str):
        return architecture
    capability = architecture or given_device(None).compute_capability
    if not isinstance(capability, tuple) or [type(each) for each in capability] != [int, int]:
        raise TypeError(
            "architecture takes a compute capability such as (8, 0), or a name such as 'sm_90a', "
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
    """The key of the kept record; None if nothing may be kept."""
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
    """The values of an option: `--long=value`, `-s=value`, `-s value`, and for -I `-Ivalue`."""
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
