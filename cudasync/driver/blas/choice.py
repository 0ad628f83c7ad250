"""Floor 1, BLAS. The choice of cuBLAS for a device's products, with the reason.

The software GPU cannot use cuBLAS, which contains machine code for NVIDIA's GPUs and no PTX. A real
device uses cuBLAS if it is installed and works.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from cudasync.driver.blas.handles import Blas
from cudasync.driver.blas.library import found, opened
from cudasync.errors import CudaError, CudasyncError

if TYPE_CHECKING:
    from cudasync.driver.device import Device

VARIABLE = "CUDASYNC_CUBLAS"


class Choice(NamedTuple):
    """The library for products: cuBLAS, or None, with the reason as a clause for the user."""

    blas: Blas | None
    why: str

    def __str__(self) -> str:
        return repr(self.blas) if self.blas is not None else f"own kernels ({self.why})"


# By device and value of CUDASYNC_CUBLAS, with the life of the context.
_choices: dict[tuple[int, str], tuple[object, Choice]] = {}


def blas_of(device: Device) -> Choice:
    """The library for products of float32 and float64 on this device, chosen once.

    CUDASYNC_CUBLAS=0 switches cuBLAS off; the path of a library selects that library on any device;
    `auto`, or nothing, takes the installed library on a real device. Raises CudasyncError for any
    other value, and for a path without a library.
    """
    wish = os.environ.get(VARIABLE) or "auto"
    # The context has a token once it is made.
    device.context.enter()
    token = device.context.token
    key = (device.ordinal, wish)
    known = _choices.get(key)
    if known is None or known[0] is not token:
        known = _choices[key] = (token, _chosen(device, wish))
    return known[1]


def _chosen(device: Device, wish: str) -> Choice:
    if wish == "0":
        return Choice(None, f"{VARIABLE}=0")
    if os.sep in wish:
        return Choice(Blas(opened(wish), device), f"{VARIABLE}={wish}")
    if wish != "auto":
        raise CudasyncError(f"{VARIABLE}={wish!r}: set it to auto, 0 or the path of a library")
    if device.is_software:
        return Choice(None, "cuBLAS has no code for the software GPU")
    try:
        library = found()
        if library is None:
            return Choice(None, "nvidia-cublas is not installed")
        return Choice(Blas(library, device), "it is installed")
    except CudaError as error:
        return Choice(None, f"{library!r} refuses the device: {error}")
    except CudasyncError as error:
        return Choice(None, str(error))
