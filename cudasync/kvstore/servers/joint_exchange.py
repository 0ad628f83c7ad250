"""Floor 5. A push and the pull behind it as one exchange, if the push has not begun.

The answer to the push then carries the new value, and the pull has nothing to do. Between the two
is no other op of this worker on the part, so the value is one that the pull could have got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.log.node import waits_only_for

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.engine import Op
    from cudasync.kvstore.servers.exchange import Exchange


class JointExchange:
    """The push of a part, and the first pull behind it, if the pull comes in time."""

    __slots__ = ("_exchange", "_is_joined", "_pull", "_push")

    def __init__(self) -> None:
        self._push: Op | None = None
        self._pull: tuple[Op, Array] | None = None
        self._exchange: Exchange | None = None
        self._is_joined = False

    def has_push(self, op: Op) -> None:
        """Note the op of the push, which may have begun."""
        self._push = op

    def has_pull(self, op: Op, into: Array) -> None:
        """Note a pull behind the push; only the first counts."""
        if self._pull is None:
            self._pull = op, into

    def target(self) -> Array | None:
        """Where the push, which begins, may put the value: None unless a pull waits for it alone.

        Earlier ops may still use the memory of a pull that waits for other ops, too.
        """
        pull, push = self._pull, self._push
        if pull is None or push is None or not waits_only_for(pull[0], push):
            return None
        self._is_joined = True
        return pull[1]

    def begun(self, exchange: Exchange) -> Exchange:
        """Note the exchange of the push, and return it."""
        self._exchange = exchange
        return exchange

    def has_value(self) -> bool:
        """Whether the push has put the value where the pull wants it; the push is over."""
        return self._is_joined and self._exchange is not None and self._exchange.has_result
