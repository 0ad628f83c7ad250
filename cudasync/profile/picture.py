"""The tower. A profile as a picture: a row for each stream and worker, a panel for each clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cudasync.profile.record import Record

# The colours of the page. Most people with colour blindness can tell them apart.
COLOURS = {
    "host": "#4477aa", "kernel": "#228833", "HtoD": "#ee7733", "DtoH": "#aa3377",
    "DtoD": "#ccaa33", "allocate": "#66aacc", "free": "#888888", "wait": "#998877",
    "annotation": "#555599",
}  # fmt: skip
_OTHER = "#777777"
_WIDTH_INCHES, _ROW_INCHES, _MARGIN_INCHES = 11.0, 0.24, 1.0
_UNITS = (("us", 1.0), ("ms", 1e3), ("s", 1e6))
# A share of a panel's width for each letter of a name, at seven points: a shorter bar has no name.
_LETTER_SHARE = 0.007
_THIN_SHARE = 0.003


def draw(records: Sequence[Record], file: str | Path) -> None:
    """Write the picture to `file`, in the format that its name ends with.

    Raises ModuleNotFoundError without matplotlib, OSError if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'a picture needs matplotlib: pip install "cudasync[demo]", or use p.html()',
            name="matplotlib",
        ) from error
    panels: dict[str, dict[str, list[Record]]] = {}
    timed = [each for each in records if each.has_times]
    for each in sorted(timed, key=lambda record: (record.clock, record.place or "")):
        panels.setdefault(each.clock, {}).setdefault(each.place or "", []).append(each)
    if not panels:
        figure = Figure(figsize=(_WIDTH_INCHES, _MARGIN_INCHES))
        figure.text(0.5, 0.5, "no op was timed", ha="center", va="center")
        figure.savefig(file)
        return
    heights = [_ROW_INCHES * len(rows) + _MARGIN_INCHES for rows in panels.values()]
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, (clock, rows) in zip(axes, panels.items(), strict=True):
        _panel(panel, clock, rows)
    figure.savefig(file, dpi=150)


def _panel(panel: Any, clock: str, rows: dict[str, list[Record]]) -> None:
    """Draw the ops of one clock."""
    ops = [each for row in rows.values() for each in row]
    begin_us = min(each.start_us or 0.0 for each in ops)
    whole_us = max(max(each.end_us or 0.0 for each in ops) - begin_us, 1e-3)
    unit, divisor = next((u for u in reversed(_UNITS) if whole_us >= u[1]), _UNITS[0])
    for at, row in enumerate(rows.values()):
        for (kind, is_thin), spans in _spans(row, begin_us, whole_us).items():
            colour = COLOURS.get(kind, _OTHER)
            scaled = [(start_us / divisor, length_us / divisor) for start_us, length_us in spans]
            # A white edge separates neighbours, but would hide a thin bar.
            edge = colour if is_thin else "white"
            panel.broken_barh(scaled, (at - 0.4, 0.8), color=colour, linewidth=0.4, ec=edge)
        for each in row:
            name = _plain(each.name)
            if each.duration_us > whole_us * _LETTER_SHARE * len(name):
                middle = ((each.start_us or 0.0) + each.duration_us / 2 - begin_us) / divisor
                panel.text(middle, at, name, color="white", fontsize=7, ha="center", va="center",
                           clip_on=True)  # fmt: skip
    panel.set_yticks(range(len(rows)), [_plain(name) for name in rows], fontsize=8)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(0, whole_us / divisor)
    panel.set_title(f"{clock}, in {unit}", loc="left", fontsize=10)
    panel.tick_params(axis="x", labelsize=8)
    _legend(panel, sorted({each.kind for each in ops}))


def _spans(
    row: Sequence[Record], begin_us: float, whole_us: float
) -> dict[tuple[str, bool], list[tuple[float, float]]]:
    """Start and length by kind, with thin bars apart."""
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for each in row:
        span = (each.start_us or 0.0) - begin_us, each.duration_us
        found.setdefault((each.kind, span[1] < whole_us * _THIN_SHARE), []).append(span)
    return found


def _legend(panel: Any, kinds: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    panel.legend(
        handles=[Patch(color=COLOURS.get(kind, _OTHER), label=kind) for kind in kinds],
        loc="lower right", bbox_to_anchor=(1, 1), ncols=len(kinds), fontsize=8, frameon=False,
    )  # fmt: skip


def _plain(name: str) -> str:
    """The name with dollars escaped: matplotlib takes text between two dollars for TeX."""
    return name.replace("$", r"\$")
