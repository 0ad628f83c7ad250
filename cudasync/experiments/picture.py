"""A picture of the ops over time: for each experiment both ways, one below the other."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from cudasync.demo.chart import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import cudasync as cs
    from cudasync.experiments.measuring import Measurement

# Most people with colour blindness can tell these colours apart.
_COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee"),
    *("#aa3377", "#bbbbbb", "#dd8833", "#332288", "#88ccaa"),
)
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.22, 1.1, 10.0


def draw(found: Sequence[Measurement], path: Path) -> None:
    """Write the picture to `path`, in the format that its name ends with.

    A way without a trace, as on the serial engine, has no panel. OSError if the file cannot be
    written.
    """
    drawn = [(each, way, trace) for each in found for way, trace in each.traces.items()]
    if not drawn:
        figure = Figure(figsize=(_WIDTH_INCHES, _MARGIN_INCHES))
        figure.text(0.5, 0.5, "nothing was traced", ha="center", va="center")
        figure.savefig(path)
        return
    rows = [len({entry.timeline for entry in trace}) for _, _, trace in drawn]
    heights = [_ROW_INCHES * count + _MARGIN_INCHES for count in rows]
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
    panels = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, (each, way, trace) in zip(panels, drawn, strict=True):
        last_us = max(entry.end_us for entry in chain(*each.traces.values()))
        _draw_panel(panel, trace)
        panel.set_xlim(0, last_us * 1.01 / 1e3)
        panel.set_title(f"{each.name}: {way}", loc="left", fontsize=10)
        panel.set_xlabel(f"ms, {each.trace_clock}", fontsize=8)
    figure.savefig(path)


def _draw_panel(panel: Any, trace: Sequence[cs.TraceEntry]) -> None:
    """A row for each stream and worker, a colour for each kind of op."""
    names = list(dict.fromkeys(entry.name for entry in trace))
    lines = in_order({entry.timeline for entry in trace})
    for name, colour in zip(names, _COLOURS * len(names), strict=False):
        label = name
        for row, timeline in enumerate(lines):
            spans = [
                (entry.start_us / 1e3, (entry.end_us - entry.start_us) / 1e3)
                for entry in trace
                if entry.name == name and entry.timeline == timeline
            ]
            if spans:
                panel.broken_barh(
                    spans, (row - 0.4, 0.8), color=colour, edgecolor="white", lw=0.4, label=label
                )
                # Only once in the legend, which leaves out names with an underscore in front.
                label = "_" + name
    panel.set_yticks(range(len(lines)), lines, fontsize=8)
    panel.invert_yaxis()
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
