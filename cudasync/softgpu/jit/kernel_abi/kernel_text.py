"""Cellar, jit. The LLVM text of one variant of a kernel, and what a launch has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.softgpu.interface.launch import Launch

# From here on it is faster to store past the caches, also where the next kernel reads what this one
# wrote (32 MiB of cache).
LEAST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Nontemporal:
    """What a kernel writes that may store past the caches.

    `bytes_per_thread` is None where that depends on how often loops go round; then `outputs` tell,
    the places among the parameters of pointers to what is written.
    """

    bytes_per_thread: int | None
    outputs: tuple[int, ...]

    def pays(self, launch: Launch) -> bool:
        """Whether a launch writes more than caches keep."""
        if self.bytes_per_thread is not None:
            threads = prod(launch.grid) * prod(launch.block)
            return threads * self.bytes_per_thread >= LEAST_BYTES
        pointers = [launch.parameters[each : each + 8] for each in self.outputs]
        rests = [launch.allocations.rest(int.from_bytes(each, "little")) for each in pointers]
        return sum(rests) >= LEAST_BYTES


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a kernel decides how it is launched, whatever the variant."""

    # Whether it can tell how wide a warp is; whether its blocks may run in any order.
    needs_whole_warps: bool
    is_order_free: bool
    nontemporal: Nontemporal | None


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of one variant of a kernel, and what a launch has to know of it."""

    text: str
    # What it calls, and what that calls, see `codegen.compile_text`.
    functions: Mapping[str, str]
    declarations: str
    # Scratch of each warp.
    frame_bytes: int
    has_waiting_loop: bool
    traits: Traits


# Calls release the GIL: that is what CFUNCTYPE is for here.
KernelFunction: TypeAlias = Callable[[int], int]
