"""Finds the programs of a folder, and reads how each is built and run.

NVIDIA's cuda-samples have a CMakeLists.txt for each program. HeCBench has a Makefile that names the
sources and the arguments. Include folders and definitions are read from both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.suites.native_arguments import SMALLER

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = (".cu", ".cpp", ".cc", ".c")
_LIBRARIES = re.compile(
    r"#\s*include\s*[<\"](?:\w+/)*(cublas|cufft|curand|cusparse|cusolver|cudnn|cutensor|nvgraph|"
    r"npp|nvjpeg|nccl|nvrtc|mpi\.h|nvshmem|GL/|helper_gl|FreeImage|cudaNvSci|nvscibuf|cudaEGL|EGL/|"
    r"vulkan|d3d\w*|boost|opencv|matx)",
)
# Device code that refers to other source files: -rdc=true, in the words of make and of CMake.
_RELOCATABLE = re.compile(r"-rdc[= ]true|\s-dc\b|-lcudadevrt|CUDA_SEPARABLE_COMPILATION\s+ON")
_FLAGS = re.compile(r"(?<=\s)-[ID]\s?[^\s$()\\]+")
_MODULE = re.compile(r"(\w+?)(64|)\.(fatbin|ptx)")
# Arguments that give the number of repetitions for timing.
_REPEAT = re.compile(r"repeat|iterations|number of runs", re.IGNORECASE)
# A program whose exit status is the result of a check.
_STATUS = re.compile(
    r"\?\s*(?:EXIT_SUCCESS\s*:\s*EXIT_FAILURE|EXIT_FAILURE\s*:\s*EXIT_SUCCESS)\b|"
    r"\bif\s*\(\s*(?:test|check|verify)\w*\(\)\s*\)\s*return\s+1;"
)


@dataclass(frozen=True)
class Program:
    """One program: its folder, and how its files say that it is built and run."""

    name: str
    folder: Path
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    arguments: tuple[str, ...]
    modules: tuple[tuple[Path, str], ...]
    """Sources that are compiled to a fat binary or to PTX, and the name of that file."""
    judges_by_status: bool
    """Whether its exit status, and not only its output, says whether its answer is right."""
    skipped: str
    """The reason why it is not built, or ""."""


def programs_of(top: Path, words: Sequence[str] = ()) -> list[Program]:
    """The programs under a folder, by name; of words, only those with one of them in the name."""
    found = []
    for folder in sorted({path.parent for path in top.rglob("*.c*") if path.suffix in SOURCES}):
        name = folder.relative_to(top).as_posix()
        if words and not any(word in name for word in words):
            continue
        sources = sorted(path for path in folder.iterdir() if path.suffix in SOURCES)
        is_built = (folder / "CMakeLists.txt").exists() or (folder / "Makefile").exists()
        if is_built or any(_has_main(path) for path in sources):
            found.append(_program(top, folder, sources))
    return [each for each in found if each.sources]


def _program(top: Path, folder: Path, sources: list[Path]) -> Program:
    make = "".join(
        path.read_text(errors="replace")
        for path in (folder / "Makefile", folder / "CMakeLists.txt")
        if path.exists()
    )
    make = make.replace("\\\n", " ")
    named = re.search(r"^(?:source|SOURCES?|src)\s*:?=\s*(.+)$", make, re.MULTILINE)
    if named:
        by_make = [folder / word for word in named[1].split() if word.endswith(SOURCES)]
        sources = [path for path in by_make if path.exists()] or sources
    modules = tuple(
        (folder / f"{name}.cu", f"{name}{bits}.{kind}")
        for name, bits, kind in sorted(set(_MODULE.findall(make)))
        if (folder / f"{name}.cu").exists()
    )
    sources = [path for path in sources if path not in {source for source, _ in modules}]
    for words in re.findall(r"add_executable\(([^)]*)\)", make):
        named_too = [folder / word for word in words.split() if word.endswith(SOURCES)]
        known = {path.resolve() for path in sources}
        sources += [path for path in named_too if path.exists() and path.resolve() not in known]
    text = "".join(path.read_text(errors="replace") for path in sources)
    flags = [each for each in _FLAGS.findall(make) if not re.search("CUDA|NDEBUG", each)]
    for folders in re.findall(r"include_directories\(([^)]*)\)", make):
        flags += [f"-I{word}" for word in folders.split() if "$" not in word]
    if _RELOCATABLE.search(make):
        flags.append("-rdc=true")
    run = re.search(r"^\s+.*\./(?:\$[({]\w+[)}]|main(?![\w.]))(.*)$", make, re.MULTILINE)
    arguments = run[1].split("#")[0].split() if run else []
    smaller = SMALLER.get(folder.relative_to(top).parts[-1])
    return Program(
        folder.relative_to(top).as_posix(),
        folder,
        tuple(sources),
        tuple(flags),
        tuple(_fewer_repeats(arguments, text) if smaller is None else smaller.split()),
        modules,
        _STATUS.search(text) is not None,
        _why_skipped(folder, sources)
        or ("its arguments are variables of make" if "$" in " ".join(arguments) else ""),
    )


def _why_skipped(folder: Path, sources: list[Path]) -> str:
    headers = [path for path in folder.rglob("*.*h*") if path.is_file()]
    for path in [*sources, *headers]:
        library = _LIBRARIES.search(path.read_text(errors="replace"))
        if library:
            return f"needs another library: {library[1].strip('/')}"
    return ""


def _fewer_repeats(arguments: list[str], text: str) -> list[str]:
    """One repetition in place of many, if the usage says that the last argument is their number."""
    usage = re.search(r"[Uu]sage[^;]*;", text)
    last = re.findall(r"<([^<>]+)>", usage[0]) if usage else []
    if arguments and last and _REPEAT.search(last[-1]) and arguments[-1].isdigit():
        return [*arguments[:-1], "1"]
    return arguments


def _has_main(path: Path) -> bool:
    return re.search(r"\bmain\s*\(", path.read_text(errors="replace")) is not None
