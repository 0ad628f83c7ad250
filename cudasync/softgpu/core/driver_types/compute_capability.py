"""Cellar, core. The limits and ratios of a device by its compute capability.

Source: the CUDA programming guide's tables of technical specifications and of throughput. The
table has no instructions: clusters, bulk copies, wgmma and tcgen05 are refused by name in every
capability, and reported as absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import NO_BINARY_FOR_GPU, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Capability:
    """A compute capability, and the numbers that depend on it."""

    major: int
    minor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_bytes_per_multiprocessor: int
    reserved_shared_bytes: int
    """The part of each block's shared memory that the system reserves."""
    single_to_double_ratio: int
    is_chosen: bool = True
    """True if a program chose it: texts for later devices are then refused, else they run."""

    @property
    def shared_bytes_optin(self) -> int:
        """The most shared memory that a block can opt in to."""
        return self.shared_bytes_per_multiprocessor - self.reserved_shared_bytes

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def check_target(self, target: str) -> None:
        """DriverFailure NO_BINARY_FOR_GPU if a text is for another device than this one.

        A text runs on its target and on newer devices. With the suffix `a` it runs on the target
        alone, with `f` on newer devices of the same major number.
        """
        found = _TARGET.match(target)
        if not self.is_chosen or found is None:
            return
        wanted, here = (int(found[1]), int(found[2])), (self.major, self.minor)
        runs = {
            "": wanted <= here,
            "a": wanted == here,
            "f": wanted <= here and wanted[0] == here[0],
        }
        if not runs[found[3]]:
            raise DriverFailure(
                NO_BINARY_FOR_GPU,
                f"the PTX is for {found[0]}, and the device has compute capability {self}: compile "
                "for that, or set CUDASYNC_SOFTGPU_CC",
            )


_TARGET: Final = re.compile(r"sm_(\d+)(\d)([af]?)")
_KIB: Final = 1 << 10

# Opt-in shared memory is as in 8.6, the least of the 8.x.
DEFAULT: Final = Capability(8, 0, 2048, 32, 100 * _KIB, _KIB, 32, is_chosen=False)

_BY_NAME: Final[Mapping[str, Capability]] = {
    str(each): each
    for each in (
        Capability(7, 5, 1024, 16, 64 * _KIB, 0, 32),
        Capability(8, 0, 2048, 32, 164 * _KIB, _KIB, 2),
        Capability(9, 0, 2048, 32, 228 * _KIB, _KIB, 2),
        Capability(10, 0, 2048, 32, 228 * _KIB, _KIB, 2),
        Capability(12, 0, 1536, 24, 100 * _KIB, _KIB, 64),
    )
}
NAMES: Final = tuple(_BY_NAME)


def named(text: str) -> Capability:
    """The capability with a name such as "9.0"; ValueError lists the known names."""
    found = _BY_NAME.get(text.strip())
    if found is None:
        raise ValueError(f"a compute capability must be one of {', '.join(NAMES)}, not {text!r}")
    return found
