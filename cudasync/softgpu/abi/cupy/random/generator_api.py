"""Cellar, abi. CuPy's module of random generators: its kernels in machine code are replaced.

The module's `Generator` becomes a class whose methods draw here (`generator.py`). Methods of CuPy's
that only call those stay. A method that a newer CuPy adds is refused by name, since it could launch
machine code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.cupy.device_memory import current_stream
from cudasync.softgpu.abi.cupy.random import distributions
from cudasync.softgpu.abi.cupy.random.draws import start
from cudasync.softgpu.abi.cupy.random.generator import Draws, fill
from cudasync.softgpu.abi.cupy.runtime_module import refusal

if TYPE_CHECKING:
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

COMPOSED: Final = ("chisquare", "dirichlet", "exponential", "f", "gamma", "power")
"""CuPy's methods that launch no kernel of their own: they call `Draws` and CuPy's functions."""
_UNKNOWN: Final = "this version of CuPy computes it in an unknown way: install a newer cudasync"


def amend(module: ModuleType, table: FunctionTable) -> None:
    """Replace the module's class and its two functions that launch kernels."""
    machine = table.machine

    def init_curand(generator: int, state: int, seed: int, size: int) -> None:
        if size < 1:
            raise ValueError(f"a bit generator needs a size of at least 1, not {size}")
        start(machine, current_stream(machine), int(generator), int(state), int(seed))

    def random_raw(generator: Any, out: Any) -> None:
        fill(machine, generator, "random_raw", distributions.raw, out)

    replaced: Any = module
    replaced.Generator = generator_class(replaced.Generator, machine)
    replaced.init_curand = init_curand
    replaced.random_raw = random_raw


def generator_class(original: type, machine: Any) -> type:
    """CuPy's class with its drawing methods replaced, and unknown methods refused."""
    members: dict[str, Any] = {
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "machine": machine,
    }
    for name in vars(original):
        if not name.startswith("_") and name not in COMPOSED and not hasattr(Draws, name):
            members[name] = refusal(f"cupy.random.Generator.{name}", _UNKNOWN)
    return type(original.__name__, (Draws, original), members)
