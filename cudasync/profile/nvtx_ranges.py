"""The tower. Ranges for NVIDIA's tools, by the `nvtx` wheel: annotations, and the functions of ops.

With CUDASYNC_NVTX=1 there is a range around each annotation, each host op, and the enqueuing of
each device op, whose commands Nsight shows below it. The ranges are in the domain "cudasync". If no
tool has started the process, there are no ranges.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from cudasync.engine.log.combiner import COMBINER
from cudasync.profile.annotation import LISTENERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.atomic import Append
    from cudasync.profile.annotation import Span


def start() -> None:
    """Make ranges from here on, if the environment has CUDASYNC_NVTX=1.

    Raises ValueError for any value but 1 and 0, ModuleNotFoundError without the wheel.
    """
    value = os.environ.get("CUDASYNC_NVTX") or "0"
    if value not in ("0", "1"):
        raise ValueError(
            f"CUDASYNC_NVTX={value}: set it to 1 for ranges in NVIDIA's tools, else to 0"
        )
    if value == "0" or LISTENERS:
        return
    try:
        nvtx = importlib.import_module("nvtx")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "CUDASYNC_NVTX=1 needs the nvtx wheel: pip install nvtx, or unset CUDASYNC_NVTX",
            name="nvtx",
        ) from error
    domain = nvtx.get_domain("cudasync")
    # Without a listening tool the wheel returns a dummy domain.
    if not isinstance(domain, nvtx.Domain):
        return
    ranges = Ranges(domain)
    LISTENERS.append(ranges)
    COMBINER.log.tell(ranges.wrapping)


class Ranges:
    """Ranges of annotations, as their listener, and of ops, as the log reports them."""

    # The wheel keeps each name for ever. Names beyond this count share one name.
    most_names = 10_000

    def __init__(self, domain: Any) -> None:
        self.domain = domain
        self._attributes: dict[str, Any] = {}

    def attributes(self, name: str) -> Any:
        """The attributes for a range of that name."""
        found = self._attributes.get(name)
        if found is None:
            name = name if len(self._attributes) < self.most_names else "of more names"
            # dict.setdefault is one C call, so all threads get the same object.
            made = self.domain.get_event_attributes(message=name)
            found = self._attributes.setdefault(name, made)
        return found

    def begun(self, name: str) -> None:
        self.domain.push_range(self.attributes(name))

    def ended(self, span: Span) -> None:
        self.domain.pop_range()

    def wrapping(self, append: Append) -> Append:
        """`append` of a segment of the log; before it, the function of an op gets a range."""

        def wrap(entry: Any) -> None:
            fn = getattr(entry, "_fn", None)
            if fn is not None:
                entry._fn = _in_range(fn, self.domain, self.attributes(entry.name))
            append(entry)

        return wrap


def _in_range(fn: Callable[..., Any], domain: Any, attributes: Any) -> Callable[..., Any]:
    def ranged(*arguments: Any) -> Any:
        domain.push_range(attributes)
        try:
            return fn(*arguments)
        finally:
            domain.pop_range()

    return ranged
