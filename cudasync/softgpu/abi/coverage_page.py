"""Cellar. The table of the driver's functions: implemented, not implemented, and why.

`python -m cudasync.softgpu.abi.coverage_page` writes it to `softgpu/FUNCTIONS.md`. The list of
functions comes from the bindings themselves: the names that they look up in the driver.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cuda.bindings import __version__, driver

from cudasync.softgpu.abi.install import load_stub
from cudasync.softgpu.abi.runtime.chapters import entries
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.unsupported_functions import never_needed, why_not
from cudasync.softgpu.core.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE: Final = Path(__file__).parents[1] / "FUNCTIONS.md"
COMMAND: Final = "python -m cudasync.softgpu.abi.coverage_page"

# The first pattern that matches the start of a name gives its section.
_GROUPS: Final = (
    ("Start and errors", r"cuInit|cuDriver|cuGetError|cuGetProc|cuGetExport|cuLogs|cuCoredump"),
    ("Graphs and capture", r"cuGraph(?!ics)|cuUserObject|cu.*Capture|cuDevice.*Graph"),
    ("Green contexts", r"cuGreen|cuDevRes|cuDevSm|cu.*(DevResource|GreenCtx)"),
    ("Contexts", r"cuCtx|cuDevicePrimary"),
    ("Devices", r"cuDevice"),
    ("Streams and host functions", r"cuStream|cuLaunchHost"),
    ("Graphics", r"cuGL|cuEGL|cuVDPAU|cuGraphics|cuEventCreateFromEGL"),
    ("Events", r"cuEvent"),
    ("Arrays, textures and surfaces", r"cuArray|cuMipmapped|cuTex|cuSurf|cuModuleGet(Tex|Surf)"),
    ("Copies", r"cuMemcpy|cuMemBatchDecompress"),
    ("Memset", r"cuMemset"),
    (
        "Pools and stream-ordered memory",
        r"cuMemPool|cuMem(Alloc|Free|AllocFromPool).*Async|cuMem.*Pool",
    ),
    (
        "Virtual memory",
        r"cuMem(Address|Create|Map|Unmap|Release|Retain|SetAccess|GetAccess|Export|Import|"
        r"GetAllocation)|cuMulticast",
    ),
    ("Managed memory", r"cuMem(Advise|Prefetch|Range|Discard|AllocManaged)"),
    ("Memory", r"cuMem|cuIpc|cuFlush"),
    ("Pointers", r"cuPointer"),
    ("Libraries and kernels", r"cuLibrary|cuKernel"),
    ("Modules and the linker", r"cuModule|cuLink"),
    ("Functions, launches and occupancy", r"cuFunc|cuLaunch|cuParam|cuOccupancy"),
    ("Others", r"cu"),
)
_WIDTH: Final = 120

_RUNTIME: Final = """\
## The runtime's bindings

`cuda.bindings.runtime` carries its own copy of the CUDA runtime, which does nothing before the
driver has given it two tables that NVIDIA has not documented. There are none here. Instead these
bindings, where they are imported after the software GPU is in place (as under
`python -m cudasync run`), call functions that stand on the driver's: the ones below. What needs no
driver (versions, names of errors) is NVIDIA's own; everything else answers cudaErrorNotSupported,
and says so. CuPy stands on the same functions (`abi/cupy/`);
PyTorch, which links the runtime itself, does not run.
"""


def page() -> str:
    """The whole page, for the installed bindings; call it once in a process."""
    table = load_stub(Machine(), force=True)
    driver.cuDriverGetVersion()  # The first call looks all of them up.
    names: dict[str, list[int]] = {}
    for name, version in sorted(table.asked):
        names.setdefault(name, []).append(version)
    here = {n: [v for v in vs if registry.find(n, v) is not None] for n, vs in names.items()}
    never = {n for n in names if not here[n] and never_needed(n)}
    refused = {n for n in names if not here[n]} - never
    text = (
        "# The driver's functions\n\n"
        f"Written by `{COMMAND}`, held to be true by `tests/softgpu/abi/test_coverage_page.py`.\n"
        f"Functions are those that `cuda.bindings` {__version__} looks up, by the name that it\n"
        "looks for; where a name has had several\n"
        "C signatures, the versions of CUDA that brought them stand behind it (12050 is 12.5).\n\n"
        f"Of {len(names)} functions, {len(names) - len(never) - len(refused)} are implemented. "
        f"{len(refused)} answer CUDA_ERROR_NOT_SUPPORTED and say why.\n"
        f"{len(never)} answer so, too, but no program gets to them by itself.\n"
    )
    for title, members in grouped(names).items():
        text += f"\n## {title}\n"
        text += _paragraph(
            "Implemented", [_versions(n, here[n], names[n]) for n in members if here[n]]
        )
        for kind, chosen in (("Not supported", refused), ("Never needed", never)):
            reasons: dict[str, list[str]] = {}
            for name in members:
                if name in chosen:
                    reasons.setdefault(why_not(name), []).append(name)
            for why, those in reasons.items():
                text += _paragraph(f"{kind}, since {why}", those)
    return f"{text}\n{_RUNTIME}{_of_the_runtime()}"


def _of_the_runtime() -> str:
    names = sorted(entries())
    text = f"{len(names)} functions of the runtime are here: {', '.join(names)}."
    for module in ("launches", "managed_variables", "symbols"):
        importlib.import_module(f"cudasync.softgpu.abi.native.{module}")
    more = sorted(entries().keys() - set(names))
    of_native = (
        f"Native programs (`cudasync native`) have {len(more)} more, which compilers and C++ call: "
        f"{', '.join(more)}."
    )
    filled = (textwrap.fill(each, _WIDTH, break_long_words=False) for each in (text, of_native))
    return "\n" + "\n\n".join(filled) + "\n"


def grouped(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Names by the title of their section."""
    groups: dict[str, list[str]] = {}
    for title, _ in _GROUPS:
        groups[title] = []
    for name in names:
        title = next(t for t, pattern in _GROUPS if re.match(pattern, name))
        groups[title].append(name)
    return {title: members for title, members in groups.items() if members}


def _versions(name: str, here: list[int], asked: list[int]) -> str:
    if len(asked) == 1:
        return name
    return f"{name} ({', '.join(str(version) for version in here)})"


def _paragraph(head: str, names: list[str]) -> str:
    if not names:
        return ""
    text = f"{head} ({len(names)}): {', '.join(names)}."
    return "\n" + textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def states(text: str) -> dict[str, str]:
    """The state that a page gives each function: the first words of its paragraph."""
    found: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        text = " ".join(paragraph.split())
        match = re.match(r"(Implemented|Not supported|Never needed).*? \(\d+\): (.*)\.", text)
        if match is not None:
            for name in re.sub(r" \([\d, ]+\)", "", match[2]).split(", "):
                found[name] = match[1]
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page())
