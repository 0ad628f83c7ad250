"""Floor 2. Log entries that are no ops: actions of the combiner at their place in the order.

Like ops they have a `_pool`: None, since no pool runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op


class Forget:
    """An entry of the log: the memory of a region is gone, and its history with it."""

    __slots__ = ("_pool", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self._pool = None


class Adopt:
    """An entry of the log: `op`, which allocated `region`, is its writer.

    Ops of the range's former owner do not matter: the driver reuses memory only in an order that
    makes this safe.
    """

    __slots__ = ("_pool", "op", "region")

    def __init__(self, region: Region, op: Op) -> None:
        self.region = region
        self.op = op
        self._pool = None


class Close:
    """An entry of the log: ops of `engine` that come after it are refused."""

    __slots__ = ("_pool", "engine")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._pool = None
