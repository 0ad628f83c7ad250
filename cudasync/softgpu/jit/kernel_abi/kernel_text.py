"""Cellar, jit. The LLVM text of one variant of a kernel, and its properties for a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.softgpu.interface.launch import Launch

# From this size on non-temporal stores are faster, even if the next kernel reads the results
# (32 MiB of cache).
LEAST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Nontemporal:
    """The amount of memory that a kernel with non-temporal stores writes.

    `bytes_per_thread` is None if the amount depends on trip counts of loops. Then `outputs` has the
    offsets, among the parameters, of the pointers to written memory.
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
    """Properties of a kernel that decide how it is launched, in every variant."""

    # Whether the kernel can observe the width of a warp; whether its blocks may run in any order.
    needs_whole_warps: bool
    is_order_free: bool
    nontemporal: Nontemporal | None


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of one variant of a kernel, and its properties for a launch."""

    text: str
    # The functions that it calls, directly or indirectly, see `codegen.compile_text`.
    functions: Mapping[str, str]
    declarations: str
    # Scratch of each warp.
    frame_bytes: int
    has_waiting_loop: bool
    traits: Traits


# Calls release the GIL, which is why CFUNCTYPE is used.
KernelFunction: TypeAlias = Callable[[int], int]
