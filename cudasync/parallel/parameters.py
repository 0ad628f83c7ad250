"""Floor 5. The parameters of a model in the caller's form: by name or in a row, an array a rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cudasync.distributed.argument_checks import alike, listed
from cudasync.parallel.buckets import Name, Parameter

if TYPE_CHECKING:
    from cudasync.distributed.communicator import Communicator


class Weights:
    """Each parameter's arrays, one for each rank of this process, in the order of their use."""

    def __init__(self, given: Any, comm: Communicator) -> None:
        """ValueError for no parameters, and for parameters that do not fit the ranks."""
        pairs = dict(given) if isinstance(given, Mapping) else dict(enumerate(list(given)))
        if not pairs:
            raise ValueError("no parameters are given: give at least one")
        self.arrays: dict[Name, list[Any]] = {}
        self.known: dict[Name, Parameter] = {}
        # Parameters that were given alone, not in a list; their gradients are returned alone, too.
        self.alone: set[Name] = set()
        for name, each in pairs.items():
            what = f"parameter {name!r}"
            arrays = listed(comm, each, what)
            alike(arrays, arrays[0].shape, arrays[0].dtype, what)
            self.arrays[name] = arrays
            self.known[name] = Parameter(name, arrays[0].shape, arrays[0].dtype)
            if not isinstance(each, (list, tuple)):
                self.alone.add(name)

    def parameter(self, name: Name) -> Parameter:
        """The parameter of a name; KeyError, which lists the names, for an unknown name."""
        if name not in self.known:
            raise KeyError(
                f"{name!r} is not a parameter: choose from {', '.join(map(repr, self.known))}"
            )
        return self.known[name]

    def as_given(self, name: Name, arrays: list[Any]) -> Any:
        """The array alone if the parameter was given alone, else a list."""
        return arrays[0] if name in self.alone else list(arrays)
