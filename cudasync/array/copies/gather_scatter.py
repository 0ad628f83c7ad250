"""Floor 4. Copies between views with gaps and contiguous memory, by a gather or scatter kernel.

The kernel knows three axes, which is enough for most views once axes that continue each other are
merged. The host loops over any further axes, with a launch for each step.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from cudasync.array.creation import empty_like
from cudasync.array.interchange.cuda_array_interface import strided
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.array.kernels.launch_accesses import In, InOut, Out
from cudasync.array.kernels.modules import Module
from cudasync.array.memory.limits import check_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from cudasync.array.array import Array
    from cudasync.array.kernels.kernel import Kernel
    from cudasync.driver import Device
    from cudasync.engine import Op

    # Length and stride in bytes.
    Axis: TypeAlias = tuple[int, int]

_BLOCK = 256
_AXES = 3

# By verb and place, each with the token of its context's life: a reset ends a module.
_modules: dict[tuple[str, int], tuple[object, Module]] = {}


def gather(source: Array, *, name: str = "copy", priority: int = 0) -> Array:
    """A new contiguous array with the elements of `source`. Does not wait."""
    # A view may have more elements than there is memory.
    check_size(source.shape, source.nbytes, source.device)
    made = empty_like(source)
    if made.nbytes:
        _move("gather", source, made, name, priority)
    return made


def scatter(target: Array, source: Array, *, name: str = "copy", priority: int = 0) -> Op:
    """Copy `source`, contiguous and on the same device, to the elements of `target`; not empty.

    Both have one shape and dtype. Returns the last op at once.
    """
    return _move("scatter", target, source, name, priority)


def _move(verb: str, view: Array, plain: Array, name: str, priority: int) -> Op:
    """Launch the kernels between `view`, whose elements lie apart, and `plain`, contiguous."""
    word = math.gcd(8, view.ptr, plain.ptr, view.dtype.itemsize, *view.strides)
    axes = _merged(view.shape, view.strides)
    if view.dtype.itemsize > word:
        axes.append((view.dtype.itemsize // word, word))
    axes = [(1, 0)] * (_AXES - len(axes)) + axes
    outer, inner = axes[:-_AXES], axes[-_AXES:]
    count = math.prod(length for length, _ in inner)
    (_, rows, columns), steps = zip(*inner, strict=True)
    kernel = _kernel(verb, view.device, word)
    grid = -(-count // _BLOCK)
    words = plain.reshape(-1).view(f"V{word}")
    whole = strided(view)
    places = list(itertools.product(*(range(length) for length, _ in outer)))
    for number, indices in enumerate(places):
        offset = sum(i * stride for i, (_, stride) in zip(indices, outer, strict=True))
        first = type(whole)(whole._allocation, whole.ptr + offset, (), (), words.dtype)
        first.region = whole.region
        part = words[number * count : (number + 1) * count]
        if verb == "gather":
            pair: tuple[Any, Any] = In(first), Out(part)
        else:
            # Together they overwrite the view. The first needs no old value; the later ones need
            # what the first has written.
            pair = In(part), (InOut if number else Out)(first)
        is_last = number == len(places) - 1
        op = kernel[grid, _BLOCK](
            *pair,
            *(count, rows, columns, *steps),
            name=name if is_last else f"{name} (part)",
            priority=priority,
        )
    return op


def _merged(shape: Sequence[int], strides: Sequence[int]) -> list[Axis]:
    """The axes without those of length 1; an outer axis that continues the inner is merged."""
    axes: list[Axis] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    return axes


def _kernel(verb: str, device: Device, word: int) -> Kernel:
    token = device.context.token
    key = verb, device.ordinal
    found = _modules.get(key)
    if found is None or found[0] is not token:
        module = Module.from_file(kernel_file(verb), device=device)
        # The token from before: a module is not used again if a reset came in between.
        found = _modules[key] = (token, module)
    return found[1].kernel(f"{verb}_u{8 * word}")
