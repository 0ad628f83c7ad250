"""Floor 3, control flow. A block while it is recorded: pushes inside become its program.

It opens and closes with the thread's recording. A block that an exception leaves is not recorded;
the program around it goes on as if the block had not begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.errors import RecordingError

if TYPE_CHECKING:
    from types import TracebackType

    from cudasync.graph.control import Control
    from cudasync.graph.node import Node
    from cudasync.graph.recorder import Recorder


class Block:
    """The result of `g.repeat`, `g.while_loop` and `g.cond`: a `with` block that is recorded."""

    def __init__(
        self, recorder: Recorder | None, control: Control, first: Block | None = None
    ) -> None:
        self._recorder = recorder
        self._control = control
        # For an else branch: the block that it belongs to.
        self._first = first
        self._is_begun = False
        self._node: Node | None = None

    def __enter__(self) -> Block:
        recorder: Any = self._recorder
        here: Any = current.engine()
        if recorder is None or here is not recorder or recorder.is_closed:
            raise RecordingError(
                f"{self._control.name} must be recorded inside the `with` block of its own graph"
            )
        if self._is_begun:
            raise RecordingError("a block is recorded once: make another block")
        if self._first is not None and self._first._node not in recorder.nodes[-1:]:
            raise RecordingError("otherwise() must directly follow the block of its cond")
        self._is_begun = True
        recorder.open_block()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        assert recorder is not None
        nodes = recorder.close_block()
        if error is not None:
            return
        if self._first is None:
            self._control = self._control.with_bodies([nodes])
            self._node = recorder.record_block(self._control)
        else:
            node = self._first._node
            assert node is not None
            control = self._first._control
            recorder.widen_block(node, control.with_bodies([*control.bodies, nodes]))
            self._first._node = None

    def otherwise(self) -> Block:
        """`with chosen.otherwise():` runs its block if the flag of `g.cond` is 0.

        Raises RecordingError unless it stands directly behind the block of its cond, and at its
        second use.
        """
        if self._control.name != "cond" or self._first is not None or self._node is None:
            raise RecordingError("otherwise() must directly follow the block of its cond, once")
        return Block(self._recorder, self._control, self)
