"""A picture of training: the loss of each way by step, and its difference from the first way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from cudasync.experiments.training.outcome import Outcome

_SIZE_INCHES = (10.0, 5.0)
# A logarithmic axis cannot show equal losses: they are drawn at half the last bit of float32.
_LEAST = 2.0**-25
_MARKS = "osv^Dx*"


def draw(found: Outcome, path: Path) -> None:
    """Write the picture to `path`, in the format of its name's ending; OSError if that fails."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    losses, differences = figure.subplots(1, 2)
    first = found.ways[0]
    for number, way in enumerate(found.ways):
        mark = _MARKS[number % len(_MARKS)]
        losses.plot(way.losses, marker=mark, markevery=(number, 5), label=way.name, lw=1, ms=5)
        if way is not first:
            apart = [abs(a - b) for a, b in zip(way.losses, first.losses, strict=True)]
            differences.semilogy(
                [max(each, _LEAST) for each in apart], marker=mark, label=way.name, lw=1, ms=4
            )
    losses.set_title("training: loss", loc="left", fontsize=10)
    differences.set_title("training: difference from one device", loc="left", fontsize=10)
    for panel in (losses, differences):
        panel.set_xlabel("step", fontsize=8)
        panel.legend(fontsize=7)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.savefig(path)
