"""Floor 1. The CUDA C text of a module: compiled for each device, its kernels found by name.

A kernel is found by its name in the PTX, by its C++ expression ("scale<float>"), or by its plain
name if that is unique: the PTX has a mangled name such as "_Z5scalePfi" for a kernel that is not
extern "C".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.driver.compiler.compilation import compile_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudasync.driver.compiler.compilation import Architecture, CompiledCuda
    from cudasync.driver.device import Device
    from cudasync.ptx import ir

# _Z, then perhaps a namespace or internal linkage, then parts that begin with their length. From
# the Itanium C++ ABI, which NVRTC follows.
_MANGLED = re.compile(r"_Z(N?)L?(?=\d)")
_LENGTH = re.compile(r"L?(\d+)")
_NO_NAMESPACE = "_GLOBAL__N_"


# The program's options that already decide whether the PTX has lines.
_OF_LINES = {"-lineinfo", "-G", "--device-debug", "--generate-line-info"}


def with_lines(options: Sequence[str]) -> Sequence[str]:
    """These options, plus the option for line information in the PTX."""
    if isinstance(options, str | bytes) or _OF_LINES.intersection(options):
        return options
    return ("--generate-line-info", *options)


@dataclass(frozen=True)
class CudaText:
    """CUDA C with the arguments of `compile_cuda`."""

    source: str
    name: str
    options: Sequence[str]
    include_dirs: Sequence[str]
    architecture: Architecture | None
    name_expressions: Sequence[str]

    def of(self, expression: str) -> CudaText:
        """The same for this expression alone."""
        return replace(self, name_expressions=(expression,))

    def compiled(self, device: Device) -> CompiledCuda:
        """The PTX for `device`, with the names of the expressions."""
        return compile_cuda(
            self.source,
            name=self.name,
            architecture=self.architecture or device.compute_capability,
            options=self.options,
            include_dirs=self.include_dirs,
            name_expressions=self.name_expressions,
        )


def symbol_for(name: str, symbols: Sequence[str], lowered: Mapping[str, str]) -> str | None:
    """The kernel that `name` means among `symbols`, kernels in the PTX; None if it is none of them.

    Raises ValueError if it may mean several.
    """
    if name in symbols:
        return name
    wanted = squeezed(name)
    for expression, symbol in lowered.items():
        if squeezed(expression) == wanted and symbol in symbols:
            return symbol
    found = [each for each in symbols if name in _plain_names(each)]
    if len(found) > 1:
        raise ValueError(
            f"{name!r} matches the kernels {', '.join(found)}: give one of these names, or an "
            f"expression such as a template with its arguments"
        )
    return found[0] if found else None


def label_of(symbol: str, lowered: Mapping[str, str]) -> str:
    """The kernel's name for the user: its expression, else its plain name with namespaces."""
    for expression, each in lowered.items():
        if each == symbol:
            return expression
    return (*_plain_names(symbol), symbol)[0]


def own_variables(parsed: ir.Module | None) -> Iterable[str] | None:
    """The variables in the module's source; None if they are not known."""
    if parsed is None:
        return None
    # A name with $ is the compiler's, for instance a format of printf.
    return [each.name for each in parsed.variables if "$" not in each.name]


def _plain_names(symbol: str) -> tuple[str, ...]:
    """The C++ names of a mangled symbol: with its namespaces, and without; () if none."""
    found = _MANGLED.match(symbol)
    if found is None:
        return ()
    parts = []
    place = found.end()
    while (length := _LENGTH.match(symbol, place)) is not None:
        start, size = length.end(), int(length[1])
        parts.append(symbol[start : start + size])
        place = start + size
        if not found[1]:
            break
    parts = [part for part in parts if not part.startswith(_NO_NAMESPACE)]
    return tuple("::".join(parts[first:]) for first in range(len(parts)))


def squeezed(expression: str) -> str:
    """An expression without its spaces, for comparison."""
    return re.sub(r"\s+", "", expression)
