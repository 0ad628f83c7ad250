"""Floor 4. Contiguous copies of views with gaps: a kernel gathers what lies apart.

The kernel knows three axes, which is enough for most views once axes that continue each other
are taken together. What more there are, the host counts through, a launch for each.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from cudasync.array.creation import empty_like
from cudasync.array.foreign import strided
from cudasync.array.modules import Module
from cudasync.array.shipped import kernel_file
from cudasync.array.uses import In, Out

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from cudasync.array.array import Array
    from cudasync.array.kernels import Kernel
    from cudasync.driver import Device

    # Length and stride in bytes.
    Axis: TypeAlias = tuple[int, int]

_BLOCK = 256
_AXES = 3

# By what the life of a device's context goes by: a reset ends the modules in it.
_modules: dict[int, tuple[object, Module]] = {}


def gather(source: Array) -> Array:
    """A new contiguous array with the elements of `source`. Does not wait."""
    made = empty_like(source)
    if not made.nbytes:
        return made
    word = math.gcd(8, source.ptr, source.dtype.itemsize, *source.strides)
    axes = _merged(source.shape, source.strides)
    if source.dtype.itemsize > word:
        axes.append((source.dtype.itemsize // word, word))
    axes = [(1, 0)] * (_AXES - len(axes)) + axes
    outer, inner = axes[:-_AXES], axes[-_AXES:]
    count = math.prod(length for length, _ in inner)
    (_, rows, columns), steps = zip(*inner, strict=True)
    kernel = _kernel(source.device, word)
    grid = -(-count // _BLOCK)
    target = made.reshape(-1).view(f"V{word}")
    whole = strided(source)
    for number, indices in enumerate(itertools.product(*(range(length) for length, _ in outer))):
        offset = sum(i * stride for i, (_, stride) in zip(indices, outer, strict=True))
        first = type(whole)(whole._allocation, whole.ptr + offset, (), (), target.dtype)
        first.region = whole.region
        part = target[number * count : (number + 1) * count]
        kernel[grid, _BLOCK](In(first), Out(part), count, rows, columns, *steps, name="copy")
    return made


def _merged(shape: Sequence[int], strides: Sequence[int]) -> list[Axis]:
    """The axes, those of length 1 left out, and two as one where the outer continues the inner."""
    axes: list[Axis] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    return axes


def _kernel(device: Device, word: int) -> Kernel:
    token = device.context.token
    found = _modules.get(device.ordinal)
    if found is None or found[0] is not token:
        module = Module.from_file(kernel_file("gather"), device=device)
        # The token that it has now: loading may have made the context.
        found = _modules[device.ordinal] = (device.context.token, module)
    return found[1].kernel(f"gather_u{8 * word}")
