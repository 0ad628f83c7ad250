"""The results of training as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.experiments.training.outcome import BOUND, TOLERANCE, TOLERANCE_OF_NUMPY

if TYPE_CHECKING:
    from cudasync.experiments.training.outcome import Outcome, Trained

_HEADS = ("loss, first and last", "accuracy", "off by", "a step")


def as_text(found: Outcome) -> list[str]:
    """The lines of the report, none longer than a hundred characters."""
    rows = [(each.name, *_row(found, each)) for each in found.ways]
    widths = [max(map(len, column)) for column in zip(("", *_HEADS), *rows, strict=True)]
    settings = found.settings
    return [
        "training: a perceptron of two layers learns handwritten digits",
        f"  {settings.steps} steps, batches of {settings.batch}, {settings.hidden} hidden units",
        "  expected   every variant has the losses of one device; with servers, losses differ, and",
        f"             the last loss is at most {BOUND:g} times as large",
        f"  measured   {_verdict(found)}",
        f"  reference  NumPy's float64 within {TOLERANCE_OF_NUMPY:.0e} "
        f"(off by {found.difference_of_numpy:.0e})",
        "",
        *(_line(row, widths) for row in (("", *_HEADS), *rows)),
        *(f"  not run: {name}: {why}" for name, why in found.left_out.items()),
    ]


def _verdict(found: Outcome) -> str:
    wrong = [each.name for each in found.ways if not found.is_right(each)]
    if wrong:
        return f"NOT as expected, within {TOLERANCE:.0e}: {', '.join(wrong)}"
    served = sum(each.is_asynchronous for each in found.ways)
    behind = f", {served} with servers below {BOUND:g} times its loss" if served else ""
    return f"{len(found.ways) - served} variants within {TOLERANCE:.0e}{behind}: as expected"


def _row(found: Outcome, way: Trained) -> tuple[str, str, str, str]:
    return (
        f"{way.losses[0]:.4f} -> {way.losses[-1]:.4f}",
        f"{way.accuracy:.1%}",
        f"{found.difference(way):.0e}" if way is not found.ways[0] else "-",
        f"{way.seconds * 1e3 / len(way.losses):.1f} ms",
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    first, *others = (f"{each:<{width}}" for each, width in zip(row, widths, strict=True))
    return "  ".join(("  " + first, *others)).rstrip()
