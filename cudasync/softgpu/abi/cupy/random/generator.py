"""Cellar, abi. The methods of CuPy's `Generator` that draw numbers.

Arguments, results and errors are those of CuPy's methods. The other methods of CuPy's class call
these, so they are CuPy's own: see `generator_api.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from cudasync.softgpu.abi.cupy.device_memory import current_stream
from cudasync.softgpu.abi.cupy.random import distributions
from cudasync.softgpu.abi.cupy.random.draws import Operand, draw

if TYPE_CHECKING:
    from cudasync.softgpu.abi.cupy.random.distributions import Distribution
    from cudasync.softgpu.core.machine import Machine

    Size = int | tuple[int, ...] | None

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_I64: Final = np.dtype(np.int64)
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_U32_MAX, _U64_MAX = 2**32 - 1, 2**64 - 1
_SCALARS: Final = (float, int)


class Draws:
    """The methods; `bit_generator` is the attribute that CuPy's class sets."""

    machine: ClassVar[Machine]
    bit_generator: Any

    def random(self, size: Size = None, dtype: Any = np.float64, out: Any = None) -> Any:
        self._check(dtype, size, out)
        drawn = self._uniform(np.dtype(dtype), size, "random")
        return _given(drawn, out).astype(dtype, copy=False)

    def uniform(
        self, low: Any = 0.0, high: Any = 1.0, size: Size = None, dtype: Any = np.float64
    ) -> Any:
        cupy = _cupy()
        low, high = cupy.asarray(low), cupy.asarray(high)
        shape = cupy.broadcast(low, high).shape if size is None else size
        drawn = self._uniform(np.dtype(dtype), shape, "uniform")
        low, high = cupy.broadcast_to(low, drawn.shape), cupy.broadcast_to(high, drawn.shape)
        return (low + (high - low) * drawn).astype(dtype, copy=False)

    def _uniform(self, dtype: np.dtype[Any], size: Size, name: str) -> Any:
        if dtype == _F64:
            return self._drawn(name, distributions.uniform, size, _F64)
        return self._drawn(name, distributions.uniform_float, size, _F32)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Size = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        first, last = (0, int(low)) if high is None else (int(low), int(high))
        last -= not endpoint
        if first > last:
            raise ValueError("low >= high")
        limits, name = np.iinfo(dtype), np.dtype(dtype).name
        if first < limits.min:
            raise ValueError(f"low is out of bounds for {name}")
        if last > limits.max:
            raise ValueError(f"high is out of bounds for {name}")
        span = last - first
        if span > _U64_MAX:
            raise ValueError(f"high - low must be within uint64 range (actual: {span})")
        if span > _U32_MAX:
            drawn = self._drawn("integers", distributions.interval_64, size, _U64, span)
        else:
            drawn = self._drawn("integers", distributions.interval_32, size, _U32, span)
        return _cupy().add(first, drawn, dtype=dtype)

    def standard_normal(self, size: Size = None, dtype: Any = np.float64, out: Any = None) -> Any:
        self._check(dtype, size, out)
        drawn = _cupy().ndarray(_or_scalar(size), dtype) if out is None else out
        if drawn.dtype == _F64:
            self._draw("standard_normal", distributions.normal, drawn)
        elif drawn.dtype == _F32:
            self._draw("standard_normal", distributions.normal_float, drawn)
        else:
            raise TypeError(f"Unsupported dtype {drawn.dtype.name} for standard_normal")
        return drawn

    def standard_exponential(
        self, size: Size = None, dtype: Any = np.float64, method: str = "inv", out: Any = None
    ) -> Any:
        if method == "zig":
            raise NotImplementedError("Ziggurat method is not supported")
        self._check(dtype, size, out)
        drawn = self._drawn("standard_exponential", distributions.exponential, size, _F64)
        return _given(drawn, out).astype(dtype, copy=False)

    def standard_gamma(
        self, shape: Any, size: Size = None, dtype: Any = np.float64, out: Any = None
    ) -> Any:
        if shape is None:
            raise TypeError("shape must be real number, not NoneType")
        k = _parameter(shape, "shape", _F64, error=ValueError)
        if size is not None:
            size = _as_tuple(size)
        else:
            size = k.shape if out is None else out.shape
        self._check(dtype, size, out, True)
        if np.dtype(dtype) not in (_F32, _F64):
            raise TypeError(f"Unsupported dtype {np.dtype(dtype).name} for standard_gamma")
        in_place = out is not None and out.dtype == _F64
        drawn = out if in_place else _cupy().ndarray(size, _F64)
        self._draw("standard_gamma", distributions.gamma, drawn, k)
        return _given(drawn, out).astype(dtype, copy=False)

    def beta(self, a: Any, b: Any, size: Size = None, dtype: Any = np.float64) -> Any:
        found = (_parameter(a, "a", _F64), _parameter(b, "b", _F64))
        return self._broadcast("beta", distributions.beta, size, _F64, *found).astype(
            dtype, copy=False
        )

    def binomial(self, n: Any, p: Any, size: Size = None) -> Any:
        found = (_parameter(n, "n", _I64), _parameter(p, "p", _F64, scalars=(float,)))
        return self._broadcast("binomial", distributions.binomial, size, _I64, *found)

    def geometric(self, p: Any, size: Size = None) -> Any:
        found = _parameter(p, "p", _F64)
        return self._broadcast("geometric", distributions.geometric, size, _I64, found)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Size = None) -> Any:
        given = {"ngood": ngood, "nbad": nbad, "nsample": nsample}
        for name, value in given.items():
            if type(value) in _SCALARS and value < 0:
                raise ValueError(f"{name} < 0")
        found = [_parameter(value, name, _I64) for name, value in given.items()]
        return self._broadcast("hypergeometric", distributions.hypergeometric, size, _I64, *found)

    def logseries(self, p: Any, size: Size = None) -> Any:
        found = _parameter(p, "p", _F64)
        return self._broadcast("logseries", distributions.logseries, size, _I64, found)

    def poisson(self, lam: Any = 1.0, size: Size = None) -> Any:
        found = _parameter(lam, "lam", _F64)
        return self._broadcast("poisson", distributions.poisson, size, _I64, found)

    def _check(self, dtype: Any, size: Size, out: Any, *only_c_order: bool) -> None:
        """CuPy's check of an output array."""
        if out is not None:
            check: Any = self._check_output_array  # type: ignore[attr-defined]
            check(dtype, size, out, *only_c_order)

    def _broadcast(
        self,
        name: str,
        distribution: Distribution,
        size: Size,
        dtype: np.dtype[Any],
        *parameters: Any,
    ) -> Any:
        """A new array of that size, or of the parameters' common shape."""
        shape = _cupy().broadcast(*parameters).shape if size is None else _as_tuple(size)
        return self._drawn(name, distribution, shape, dtype, *parameters)

    def _drawn(
        self, name: str, distribution: Distribution, size: Size, dtype: np.dtype[Any], *given: Any
    ) -> Any:
        drawn = _cupy().ndarray(_or_scalar(size), dtype)
        self._draw(name, distribution, drawn, *given)
        return drawn

    def _draw(self, name: str, distribution: Distribution, drawn: Any, *given: Any) -> None:
        """Enqueue the draw on CuPy's current stream; arrays are broadcast to the result."""
        ndarray, broadcast_to = _cupy().ndarray, _cupy().broadcast_to
        arrays = [
            broadcast_to(each, drawn.shape) if isinstance(each, ndarray) else each for each in given
        ]
        fill(
            self.machine,
            self.bit_generator,
            name,
            distribution,
            drawn,
            *(operand(each) if isinstance(each, ndarray) else each for each in arrays),
        )


def fill(
    machine: Machine,
    bit_generator: Any,
    name: str,
    distribution: Distribution,
    drawn: Any,
    *parameters: Operand | int,
) -> None:
    """Enqueue a draw that fills a CuPy array, on CuPy's current stream."""
    state = bit_generator.state()
    if drawn.size:
        stream = current_stream(machine)
        draw(machine, stream, state, name, distribution, operand(drawn), parameters)


def operand(array: Any) -> Operand:
    """A CuPy array as an operand of a draw."""
    return Operand(array.data.ptr, array.dtype, array.shape, array.strides)


def _cupy() -> Any:
    return importlib.import_module("cupy")


def _parameter(
    value: Any,
    name: str,
    dtype: np.dtype[Any],
    scalars: tuple[type, ...] = _SCALARS,
    error: type[Exception] = TypeError,
) -> Any:
    """A parameter as a CuPy array; CuPy takes its arrays and Python's numbers only."""
    cupy = _cupy()
    if isinstance(value, cupy.ndarray):
        return value.astype(dtype, copy=False)
    if type(value) in scalars:
        return cupy.asarray(value, dtype)
    raise error(f"{name} is required to be a cupy.ndarray or a scalar")


def _as_tuple(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _or_scalar(size: Size) -> Any:
    return () if size is None else size


def _given(drawn: Any, out: Any) -> Any:
    """The caller's array with the numbers, if there is one."""
    if out is None or out is drawn:
        return drawn
    _cupy()._core.elementwise_copy(drawn, out)
    return out
