"""The arrays, launch shapes and reference results of bench_softgpu's cases.

A result is right if it is within a tolerance of NumPy's reference. Its checksum is then that of the
reference, so that contenders with different rounding have equal checksums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from bench.softgpu.peers import SOFTENING, NumPy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.harness.measurement import Session

SEED = 7
# The alignment that cuMemAlloc promises, in bytes. A vector across two lines of memory costs two.
ALIGNMENT = 256
# The share of Mandelbrot's pixels that may differ, because contraction of products changes them.
FEW = 0.005


@dataclass(frozen=True, slots=True)
class Work:
    """One case: a launch, the rivals' arguments, and the expected results."""

    case: str
    kernel: str
    grid: tuple[int, int, int]
    arguments: Sequence[Any]  # the kernel's arguments
    rival: str
    rival_arguments: Sequence[Any]
    outputs: Sequence[np.ndarray]
    reference: Callable[[], Sequence[np.ndarray]]
    tolerance: float = 1e-4
    result: Callable[[np.ndarray], Any] = np.asarray  # the part of an output that is compared
    clear: Callable[[], None] = lambda: None  # the preparation of each launch; timed

    def checksum_of(self, action: Callable[[], object]) -> Callable[[], int]:
        """The checksum of the results of `action`: the reference's if they agree."""

        def checksum() -> int:
            wanted = self.reference()
            for each in self.outputs:
                each.fill(0)
            action()
            found = [self.result(each) for each in self.outputs]
            pairs = list(zip(found, wanted, strict=True))
            agreed = all(self._agree(mine, its) for mine, its in pairs)
            return crc32(
                b"".join(np.ascontiguousarray(each) for each in (wanted if agreed else found))
            )

        return checksum

    def _agree(self, mine: np.ndarray, its: np.ndarray) -> bool:
        if self.kernel == "mandelbrot":
            return float(np.mean(mine != its)) <= FEW
        if mine.dtype.kind in "iu":
            return bool((mine == its).all())
        return bool(np.allclose(mine, its, self.tolerance, self.tolerance))


def all_work(session: Session) -> Iterator[Work]:
    """The fifteen cases, which share arrays where they can."""
    draw = np.random.default_rng(SEED)
    side = session.parameter("side", small=64, large=4096)
    count = side * side
    a = np.float32(1e-3)
    x, y = placed(draw.random(count, np.float32)), placed(np.zeros(count, np.float32))
    square, out = x.reshape(side, side), y.reshape(side, side)
    n = np.int32(count)

    yield Work(
        "saxpy", "saxpy", (-(-count // 256), 1, 1), (a, x, y, n), "saxpy", (a, x, y), (y,),
        lambda: (a * x,),
    )  # fmt: skip
    yield Work(
        "grid_stride", "grid_stride", (64, 1, 1), (x, y, n), "grid_stride", (x, y), (y,),
        lambda: (2 * x + 1,),
    )  # fmt: skip
    yield from _products(session, draw)
    sums = placed(np.zeros(256, np.float32))
    yield Work(
        "block_sum", "block_sum", (256, 1, 1), (x, sums, n), "block_sum", (x, sums), (sums,),
        lambda: (np.float64([x.sum(dtype=np.float64)]),),
        result=lambda found: found.sum(keepdims=True, dtype=np.float64),
    )  # fmt: skip
    yield Work(
        "stencil", "stencil", (side // 32, side // 8, 1), (x, y, np.int32(side)),
        "stencil", (square, out), (y,), lambda: (_made(NumPy.stencil, square).ravel(),),
    )  # fmt: skip
    yield Work(
        "transpose", "transpose", (side // 32, side // 32, 1), (x, y, np.int32(side)),
        "transpose", (square, out), (y,), lambda: (square.T.ravel(),),
    )  # fmt: skip
    letters = placed(draw.integers(0, 256, count, np.uint8))
    counts = placed(np.zeros(256, np.uint32))
    yield Work(
        "histogram", "histogram", (256, 1, 1), (letters, counts, n),
        "histogram", (letters, counts), (counts,),
        lambda: (np.bincount(letters, minlength=256).astype(np.uint32),),
        clear=lambda: counts.fill(0),
    )  # fmt: skip
    yield from _arithmetic(session, draw)
    rows = session.parameter("scan_rows", small=2, large=4096)
    numbers = placed(draw.integers(0, 100, (rows, 1024), np.int32))
    running = placed(np.zeros_like(numbers))
    yield Work(
        "scan", "scan", (rows, 1, 1), (numbers, running), "scan", (numbers, running), (running,),
        lambda: (np.cumsum(numbers, axis=1, dtype=np.int32),),
    )  # fmt: skip


def placed(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 256 bytes, like a GPU's allocation. NumPy aligns to 16 bytes."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def _products(session: Session, draw: np.random.Generator) -> Iterator[Work]:
    for large in (512, 1024):
        size = session.parameter(f"matmul_{large}", small=large // 16, large=large)
        left, right = (placed(draw.random((size, size), np.float32)) for _ in range(2))
        product = placed(np.zeros_like(left))

        def reference(left: np.ndarray = left, right: np.ndarray = right) -> Sequence[np.ndarray]:
            return (left @ right,)

        kernels = [("matmul16", 16, 16, "matmul"), ("matmul32", 32, 32, "matmul")]
        if large == 512:
            kernels.append(("matmul_naive", 32, 8, "matmul_naive"))
        for kernel, width, height, rival in kernels:
            yield Work(
                f"{kernel}_{large}", kernel, (size // width, size // height, 1),
                (left, right, product, np.int32(size)), rival, (left, right, product), (product,),
                reference,
            )  # fmt: skip


def _arithmetic(session: Session, draw: np.random.Generator) -> Iterator[Work]:
    size = session.parameter("mandelbrot", small=32, large=1024)
    limit = session.parameter("mandelbrot_steps", small=50, large=1000)
    steps = placed(np.zeros((size, size), np.int32))
    yield Work(
        "mandelbrot", "mandelbrot", (size // 32, size // 8, 1),
        (steps, np.int32(size), np.int32(limit)), "mandelbrot", (steps, limit), (steps,),
        lambda: (_mandelbrot(size, limit),),
    )  # fmt: skip
    options = session.parameter("options", small=1024, large=1 << 22)
    price, strike = (placed(5 + 25 * draw.random(options, np.float32)) for _ in range(2))
    years = placed(np.float32(0.25) + draw.random(options, np.float32))
    call, put = placed(np.zeros_like(price)), placed(np.zeros_like(price))
    five = (price, strike, years, call, put)

    def both() -> Sequence[np.ndarray]:
        NumPy.black_scholes(*(results := [*five[:3], call.copy(), put.copy()]))
        return results[3:]

    yield Work(
        "black_scholes", "black_scholes", (-(-options // 256), 1, 1), (*five, np.int32(options)),
        "black_scholes", five, (call, put), both, 1e-3,
    )  # fmt: skip
    count = session.parameter("bodies", small=256, large=8192)
    bodies = placed(draw.random((count, 4), np.float32))
    pulls = placed(np.zeros_like(bodies))
    yield Work(
        "nbody", "nbody", (count // 256, 1, 1), (bodies, pulls, np.int32(count)),
        "nbody", (bodies, pulls), (pulls,), lambda: (_pulls(bodies),), 1e-2,
    )  # fmt: skip


def _made(function: Callable[..., None], x: np.ndarray) -> np.ndarray:
    result = np.zeros_like(x)
    function(x, result)
    return result


def _mandelbrot(size: int, limit: int) -> np.ndarray:
    """The steps of each pixel. Pixels that have escaped are not computed further."""
    scale = np.float32(3) / np.float32(size)
    line = np.arange(size, dtype=np.float32) * scale
    cr = np.tile(line - np.float32(2), size)
    ci = np.repeat(line - np.float32(1.5), size)
    steps = np.zeros(size * size, np.int32)
    live = np.arange(size * size)
    a, b = np.zeros_like(cr), np.zeros_like(ci)
    for _ in range(limit):
        inside = a * a + b * b < 4
        a, b, cr, ci, live = (each[inside] for each in (a, b, cr, ci, live))
        steps[live] += 1
        a, b = a * a - b * b + cr, 2 * a * b + ci
    return steps.reshape(size, size)


def _pulls(bodies: np.ndarray) -> np.ndarray:
    result = np.zeros_like(bodies)
    for start in range(0, len(bodies), 64):
        away = bodies[None, :, :3] - bodies[start : start + 64, None, :3]
        inverse = 1 / np.sqrt((away * away).sum(2) + SOFTENING)
        result[start : start + 64, :3] = (away * (bodies[:, 3] * inverse**3)[:, :, None]).sum(1)
    return result
