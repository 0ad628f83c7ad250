"""`native`: writes the libraries for compiled CUDA programs on the software GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError
from cudasync.driver.probe import write_native_libraries

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def start(options: argparse.Namespace) -> int:
    """Write the libraries, and print how to build and run a program with them; returns 0."""
    folder: Path = options.libs.absolute()
    try:
        names = write_native_libraries(folder)
    except OSError as problem:
        raise CommandError(str(problem)) from problem
    print(f"{folder}: {' '.join(names)}")
    print(f"build: nvcc PROGRAM.cu -L {folder} -o PROGRAM")
    print(f"cmake: cmake -B build -DCMAKE_EXE_LINKER_FLAGS=-L{folder}")
    print(f"run:   LD_LIBRARY_PATH={folder} ./PROGRAM")
    return 0
