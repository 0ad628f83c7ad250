"""Floor 4, operators. Python's requests for an array's value, which wait for its writers only.

`float(x)`, `if x:`, `print(x)`, `np.asarray(x)` and `pickle.dumps(x)` wait. The library's own error
messages describe an array by `outline`, which does not wait.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.namespace import namespace
from cudasync.errors import CudasyncError, RecordingError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Values:
    """The methods that need the elements of an array."""

    __slots__ = ()

    if TYPE_CHECKING:
        shape: tuple[int, ...]
        dtype: np.dtype[Any]

        @property
        def device(self) -> Any: ...

        @property
        def size(self) -> int: ...

        def numpy(self) -> np.ndarray[Any, Any]: ...

        def copy(self) -> Any: ...

    if not TYPE_CHECKING:  # A type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_no_attribute(name), name=name, obj=self)

    def __array__(
        self, dtype: DTypeLike | None = None, *, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        """A NumPy array with a copy of the elements: waits for them. ValueError for copy=False."""
        if copy is False:
            raise ValueError("NumPy can only get a copy of a cudasync array: leave copy=False out")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def item(self) -> Any:
        """The one element as a Python number; waits for it. ValueError for any other size."""
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is not one number: index it first")
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self._one("float"))

    def __int__(self) -> int:
        return int(self._one("int"))

    def __complex__(self) -> complex:
        return complex(self._one("complex"))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"an array of shape {self.shape} has no truth value: use any() or all()"
            )
        return bool(self.numpy().item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise TypeError(
                f"only an integer array of 0 dimensions can be an index, not {outline(self)}"
            )
        return int(self.numpy().item())

    def _one(self, what: str) -> Any:
        if self.size != 1:
            raise TypeError(f"{what}() takes an array of one element, not of shape {self.shape}")
        return self.numpy().item()

    def __repr__(self) -> str:
        """The values, so it waits; if they are unavailable, the reason."""
        try:
            text = _shown(self, separator=", ", prefix=f"{type(self).__name__}(")
        except CudasyncError as error:
            return f"{outline(self)[:-1]}: {error}>"
        shape = f", shape={self.shape}" if not self.size else ""
        return f"{type(self).__name__}({text}{shape}, dtype={self.dtype}, device={where(self)})"

    def __str__(self) -> str:
        """The values, so it waits. Raises RecordingError in a recording, where there are no
        values."""
        try:
            return _shown(self)
        except RecordingError:
            raise
        except CudasyncError:
            return repr(self)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.copy()


def _shown(array: Any, **how: Any) -> str:
    """The values as text, with NumPy's options; of a large array only the printed ones are
    fetched."""
    options = np.get_printoptions()
    edge = options["edgeitems"]
    if array.size <= options["threshold"]:
        return np.array2string(array.numpy(), **how)
    # The first and the last along each axis, and one in between that stands for the others.
    places = []
    for length in array.shape:
        far = [(slice(edge), slice(edge)), (slice(-edge, None), slice(-edge, None))]
        places.append(far if length > 2 * edge else [(slice(None), slice(None))])
    shape = [min(length, 2 * edge + 1) for length in array.shape]
    shown = np.zeros(shape, array.dtype)
    for corner in itertools.product(*places):
        part = array[tuple(of for of, _ in corner)]
        shown[tuple(to for _, to in corner)] = part.copy().numpy()
    return np.array2string(shown, threshold=0, **how)


def where(array: Any) -> str:
    """The device of an array, in the form of a `device=` argument."""
    ordinal = getattr(array.device, "ordinal", None)
    return repr(str(array.device)) if ordinal is None else str(ordinal)


def outline(array: Any) -> str:
    """A short description of an array, without its values."""
    return f"<{type(array).__name__} {array.shape} {array.dtype} on device {where(array)}>"


# What people type who know NumPy, CuPy or PyTorch.
_INSTEAD = {
    "cpu": 'x.to_device("cpu"), or x.numpy()',
    "cuda": "x.to_device(0)",
    "fill": "x[...] = value",
    "flatten": "xp.reshape(x, (-1,))",
    "get": "x.numpy()",
    "ravel": "xp.reshape(x, (-1,))",
    "synchronize": "x.wait()",
    "to": "x.to_device(...), or xp.astype(x, dtype)",
    "tolist": "x.numpy().tolist()",
    "transpose": "xp.permute_dims(x, axes), or x.T",
}


def _no_attribute(name: str) -> str:
    """The message for an attribute that arrays lack, with what to write instead."""
    said = f"cudasync's arrays have no attribute {name!r}"
    if name.startswith("_"):
        return said
    instead = _INSTEAD.get(name)
    if instead is None and name in namespace(None).__all__:
        instead = f"xp.{name}(x)"
    return f"{said}: write {instead}" if instead else said
