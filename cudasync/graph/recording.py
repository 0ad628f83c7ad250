"""Floor 3. `with cs.graph() as g:` records the pushes inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.general_push import push_site
from cudasync.errors import RecordingError
from cudasync.graph import child_graphs, diagram_export
from cudasync.graph.arguments import argument
from cudasync.graph.binding import on_values
from cudasync.graph.control import Cond, Repeat, WhileLoop
from cudasync.graph.control.block import Block
from cudasync.graph.control.flag import Flag
from cudasync.graph.executable import Executable
from cudasync.graph.recorded_engine import stand_aside, stand_in
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

    from cudasync.graph.arguments import Argument
    from cudasync.graph.buffers import Unlaunched
    from cudasync.graph.node import Node


@unpicklable("record it there")
class RecordedGraph:
    """A recorded program: its `nodes`, in the order of their pushes.

    `instantiate()` makes an executable of it. It keeps the arrays alive that it names, and the
    memory of the arrays that it made.
    """

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._token: Any = None
        self._nodes: tuple[Node, ...] = ()
        self._arguments: dict[str, Argument] = {}
        self._is_whole = False
        # Memory that this recording and those inside of it made, if no launch is pushed yet.
        self._unlaunched: tuple[Unlaunched, ...] = ()

    def __enter__(self) -> RecordedGraph:
        if self._recorder is not None:
            raise RecordingError("a graph is recorded once: make another with cs.graph()")
        outside: Any = current.engine()
        # Inside of another recording this is a separate program, unless it is launched there.
        self._recorder = outside.beside() if isinstance(outside, Recorder) else Recorder(outside)
        recorder: Any = self._recorder
        stand_in(recorder)
        self._token = current.enter(recorder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        assert recorder is not None
        current.leave([self._token])
        # A fork inside of the block has ended it already in the child.
        is_whole = error is None and not recorder.is_closed
        recorder.end()
        stand_aside(recorder)
        frame = push_site()
        mine = recorder.unlaunched(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        self._unlaunched = (*recorder.inner, *([] if mine is None else [mine]))
        if is_whole:
            self._nodes = tuple(recorder.nodes)
            self._is_whole = True

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far, in the order of their pushes."""
        if self._recorder is not None and not self._recorder.is_closed:
            return tuple(self._recorder.program)
        return self._nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def argument(self, name: str, value: Any) -> Any:
        """A slot to record in place of `value`, which `exe.update(name=other)` replaces later.

        For an array the slot is an array of the same kind, without a value; for a number (for
        kernels: a NumPy scalar) a number; for a function a function. The first launches use `value`
        itself.

        Raises RecordingError outside of the recording. Raises ValueError for a name that is taken
        and for an array that is not C-contiguous, TypeError for an object that cannot be an
        argument.
        """
        recorder = self._recorder
        if recorder is None or recorder.is_closed:
            raise RecordingError("arguments must be named inside `with cs.graph() as g:`")
        if name in self._arguments:
            raise ValueError(f"the argument {name!r} exists already: choose another name")
        made = self._arguments[name] = argument(name, value)
        return made.slot

    def repeat(self, times: SupportsIndex) -> Block:
        """`with g.repeat(n):` repeats its block n times in each launch; 0 is allowed.

        Only values that are written in place (`x += 1`, `out=`) go from one round to the next.
        Instantiation writes a few rounds out, so they cost no more than without a block. Raises
        TypeError and ValueError for anything but a count, RecordingError outside of the recording.
        """
        return Block(self._recorder, Repeat.of(times))

    def while_loop(self, flag: Any) -> Block:
        """`with g.while_loop(flag):` repeats its block while `flag` is not 0.

        The flag is an array of integers or bool with one element, on a device or the CPU. It is
        read before each round, behind its writers. A loop whose flag never becomes 0 never ends.
        Raises TypeError and ValueError for another flag, RecordingError outside of the recording.
        """
        return Block(self._recorder, WhileLoop(Flag.of(flag)))

    def cond(self, flag: Any) -> Block:
        """`with g.cond(flag) as chosen:` runs its block if `flag` is not 0. A `with
        chosen.otherwise():` directly behind it runs its block if `flag` is 0.

        The flag is read once, before both: see `while_loop`, also for errors.
        """
        return Block(self._recorder, Cond(Flag.of(flag)))

    def instantiate(self, *, without: Collection[str] = ()) -> Executable:
        """An executable, which can be launched any number of times: see `Executable`.

        All passes run except those named in `without`: `cudasync.graph.passes` lists them, and
        `report()` says what each did, and has a line for each block. Arrays that the recording made
        and that are gone by now are temporaries, which passes may drop.

        Raises RecordingError if the recording is not over, or was left by an exception. Raises
        ValueError for an unknown pass, TypeError for a name that is not in a tuple, list or set.
        """
        self._raise_if_not_whole()
        return Executable(self._nodes, self._arguments, without, self._unlaunched)

    def launch(self) -> Node:
        """Inside of another recording: make this program a part of that one, as one node.

        The launch uses the first values of the arguments; passes treat both programs as one.
        Launching an `Executable` in a recording does the same with its current arguments.

        Raises RecordingError outside of a recording, and for a graph that is not whole, such as the
        one that is being recorded.
        """
        engine: Any = current.engine()
        self._raise_if_not_whole()
        if not isinstance(engine, Recorder):
            raise RecordingError(
                "a recorded graph can only be launched inside another recording: launch "
                "g.instantiate() elsewhere"
            )
        firsts = {name: each.first for name, each in self._arguments.items()}
        nodes, staged, _ = on_values(self._nodes, self._arguments, firsts)
        engine.inner += self._unlaunched
        return child_graphs.record(engine, nodes, staged, firsts)

    def _raise_if_not_whole(self) -> None:
        if not self._is_whole:
            raise RecordingError(
                "an unfinished recording cannot be instantiated: leave its `with` block first"
                if self._recorder is None or not self._recorder.is_closed
                else "an exception, or a fork of this process, ended the recording, so it is "
                "incomplete: record it again"
            )

    def to_dot(self) -> str:
        """The graph in Graphviz' language: a box for each node, an arrow for each dependency."""
        return diagram_export.to_dot(self.nodes)

    def to_mermaid(self) -> str:
        """The same as a flowchart for Mermaid, which many sites draw."""
        return diagram_export.to_mermaid(self.nodes)

    def __repr__(self) -> str:
        how = "whole" if self._is_whole else "not whole"
        return f"<RecordedGraph of {len(self)} nodes, {how}>"


def graph() -> RecordedGraph:
    """`with cs.graph() as g:` records the pushes of this thread or task inside, and runs nothing.

    All verbs are recorded: kernels, operators of arrays, copies, host and device ops, batches.
    Asking for a value (`.numpy()`, `print`, `float`, a wait) raises `RecordingError` at once.
    Memory for arrays is allocated at once and belongs to the graph.

    Inside of another recording this is a separate program. `g.launch()` there, or a launch of any
    executable, makes the program a node of the outer one.
    """
    return RecordedGraph()
