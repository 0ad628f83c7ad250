"""Cellar, abi. Writes the libraries that native programs are linked with.

The C compiler that `nvcc` needs anyway compiles them from `library.c`. The folder then has
libcudart.so.13, libcuda.so.1, and the names that a linker looks for. A linker script stands in
place of NVIDIA's static runtime, which `nvcc` links by default.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.native.names import runtime_names
from cudasync.softgpu.abi.native.versions import check_bindings
from cudasync.softgpu.abi.stub.elf import SONAME as DRIVER
from cudasync.softgpu.abi.stub.exported_symbols import exports
from cudasync.softgpu.abi.stub.loaded_libraries import RUNTIME

_SOURCE: Final = Path(__file__).with_name("library.c")
_HOUSE: Final = Path(__file__).resolve().parents[4]
_LINKS: Final = (("libcudart.so", RUNTIME), ("libcuda.so", DRIVER))
_STATIC: Final = f"INPUT(-l:{RUNTIME})\n"
_DEADLINE_S: Final = 120


def write_libraries(folder: Path) -> list[str]:
    """Write the libraries into a folder, creating it; return the names of the folder's files.

    They use the Python that calls this. CudasyncError if this machine, its Python or its compiler
    is unsuitable.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CudasyncError(
            f"native programs need x86-64, and this machine is {platform.machine()}"
        )
    check_bindings()
    python = _libpython()
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    _compile(compiler, folder, RUNTIME, runtime_names(), python, "-DRUNTIME")
    _compile(compiler, folder, DRIVER, sorted(exports().slots), python)
    for link, target in _LINKS:
        place = folder / link
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    (folder / "libcudart_static.a").write_text(_STATIC)
    return sorted(each.name for each in folder.iterdir())


def _libpython() -> Path:
    """The shared library of this Python; CudasyncError if it has none."""
    names = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    folders = [sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")]
    for folder in folders:
        for name in names:
            place = Path(folder or "", name or "")
            if name and ".so" in name and place.is_file():
                return place
    raise CudasyncError(
        f"{sys.executable} has no libpython{sys.version_info.major}.{sys.version_info.minor}.so, "
        "which native programs load: install Python's shared library (Debian: "
        "libpython3-dev), or take a Python that was built with --enable-shared"
    )


def _compiler() -> list[str]:
    """The command of a C compiler; CudasyncError if there is none."""
    chosen = os.environ.get("CC")
    if chosen:
        return shlex.split(chosen)
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    raise CudasyncError(
        "there is no C compiler (cc, gcc, clang): install one, as nvcc needs it, or set CC"
    )


def _compile(
    compiler: list[str], folder: Path, soname: str, names: list[str], python: Path, *more: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="cudasync-native-") as scratch:
        listed = "".join(f"FUNCTION({index}, {name})\n" for index, name in enumerate(names))
        Path(scratch, "names.inc").write_text(listed)
        versions = Path(scratch, "versions.map")
        versions.write_text(
            f"{soname} {{ global: *; }};\n" if soname == RUNTIME else "{ global: *; };\n"
        )
        made = Path(scratch, soname)
        command = [
            *compiler,
            *("-shared", "-fPIC", "-O2", "-std=gnu11", f"-I{scratch}", *more),
            f'-DLIBPYTHON="{_quoted(python)}"',
            f'-DPYTHON="{_quoted(Path(sys.executable))}"',
            f'-DHOUSE="{_quoted(_HOUSE)}"',
            *(str(_SOURCE), "-o", str(made), f"-Wl,-soname,{soname}"),
            *(f"-Wl,--version-script,{versions}", "-ldl", "-lpthread"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        if done.returncode:
            raise CudasyncError(
                f"{shlex.join(compiler)} failed to compile {soname}: {done.stderr[:2000]}"
            )
        # In one step, so that a running program keeps the library that it has.
        fresh = folder / f".{soname}.{os.getpid()}"
        shutil.copy(made, fresh)
        fresh.replace(folder / soname)


def _quoted(path: Path) -> str:
    text = str(path)
    if any(letter in text for letter in "\"'\\\n"):
        raise CudasyncError(f"{text}: the path must not have quotes, backslashes or newlines")
    return text
