"""Floor 5. Schedules of a pipeline: the order of a stage's forwards and backwards.

A schedule is a list of steps for each stage, and depends only on the counts of stages and
micro-batches. A step receives its input from other stages. So any order is right in which each
stage follows its own list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind: TypeAlias = Literal["forward", "backward"]


class Step(NamedTuple):
    """One direction of one micro-batch through one stage."""

    kind: Kind
    number: int


def gpipe(stage: int, stages: int, count: int) -> list[Step]:
    """All forwards, then all backwards (Huang et al., 2019): a stage keeps all micro-batches."""
    forwards = [Step("forward", number) for number in range(count)]
    return forwards + [Step("backward", number) for number in range(count)]


def one_forward_one_backward(stage: int, stages: int, count: int) -> list[Step]:
    """1F1B (Narayanan et al., 2019): a stage keeps one micro-batch for each stage from it on.

    A stage begins with enough forwards to keep the later stages busy. Then each backward frees the
    memory for the next forward.
    """
    ahead = min(stages - stage - 1, count)
    steps = [Step("forward", number) for number in range(ahead)]
    for number in range(count - ahead):
        steps += [Step("forward", ahead + number), Step("backward", number)]
    return steps + [Step("backward", number) for number in range(count - ahead, count)]


SCHEDULES: dict[str, Callable[[int, int, int], list[Step]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}


def most_kept(steps: Sequence[Step]) -> int:
    """The most micro-batches at once whose backward data a stage keeps."""
    kept = most = 0
    for step in steps:
        kept += 1 if step.kind == "forward" else -1
        most = max(most, kept)
    return most
