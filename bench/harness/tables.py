"""Makes the tables: the result of one run becomes Markdown.

A table holds only one run, because numbers of two runs differ by the machine's other work. Results
of older programs are still shown, without what those did not measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def musts(reports: Sequence[dict]) -> str:
    """Every promise of these runs with its measured value. Wishes are only in their own tables."""
    lines = ["| bench | what | must | measured (middle half) | |", "|---|---|---:|---:|---|"]
    for report in reports:
        for case, goal in promises(report):
            unit = goal["unit"]
            what, limit = goal_words(goal), amount(goal["at_most"], unit)
            lines.append(f"| {case} | {what} | {limit} | {measured(goal)} | {verdict(goal)} |")
        for measure in report.get("measures", []):
            if measure["at_most"] is not None:
                name, _, what = measure["id"].partition(": ")
                limit, value = plain(measure["at_most"]), plain(measure["value"])
                lines.append(
                    f"| {name} | {what} | {limit} | {value} {measure['unit']} "
                    f"| {verdict(measure)} |"
                )
    return "\n".join(lines)


def promises(report: dict) -> Iterator[tuple[str, dict]]:
    """The goals of a run that are musts, each with its case."""
    for case in report["cases"]:
        for goal in case.get("goals", []):
            if goal["word"] == "must":
                yield case["id"], goal


def table(report: dict) -> str:
    """The machine line, the cases with the baseline first, the promises, counts and figures."""
    lines = [f"**{report.get('task', report['program'])}** {machine_line(report)}"]
    if not report["cases"]:
        return "\n".join(lines + figure_lines(report))
    lines += [
        "",
        "| case | contender | ratio (middle half) | over the baseline | median (best) |",
        "|---|---|---:|---:|---:|",
    ]
    for case in report["cases"]:
        contenders = case["contenders"]
        names = sorted(contenders, key=lambda name: name != case["baseline"])
        for name in names:
            lines.append(row(case, name, contenders[name]))
    lines += goal_lines(report) + measure_lines(report)
    sums = ", ".join(f"{case['id']} {case['checksum']:#x}" for case in report["cases"])
    absent = [f"{name} ({why})" for name, why in report.get("absent", {}).items()]
    if absent:
        lines += ["", f"Left out: {'; '.join(absent)}."]
    return "\n".join([*lines, "", f"Checksums, equal for all contenders: {sums}."])


def machine_line(report: dict) -> str:
    """The machine and versions of the run, in one line."""
    versions = report.get("versions", {})
    parts = [
        f"at {report['commit'] or 'no commit'}",
        f"{report['rounds']} rounds",
        f"{report['cpu']}, {report['cores']} cores, load {report['load_average']}",
        f"Python {report['python']}{build(report)}",
        f"cuda-bindings {report['cuda_bindings']}",
        f"llvmlite {report['llvmlite']}",
        f"numpy {report['numpy']}",
        *(f"{name} {version}" for name, version in versions.items()),
        *([f"device {report['device']}"] if report["device"] else []),
        report["date"],
        *(["SMALL SIZES, measures nothing"] if report["small"] else []),
    ]
    return "; ".join(parts)


def build(report: dict) -> str:
    """The build of Python, if it is unusual."""
    if not report.get("free_threaded"):
        return ""
    return ", free-threaded build with its GIL on" if report["gil"] else ", without a GIL"


def row(case: dict, name: str, result: dict) -> str:
    """One contender's line; the baseline has no ratio to itself."""
    taken = result["ns"]
    cost = f"{nanoseconds(taken['median'])} ({nanoseconds(taken['least'])}) / {case['unit']}"
    if name == case["baseline"]:
        return f"| {case['id']} | {name} | 1 | | {cost} |"
    ratio, over = result["ratio"], result["overhead_ns"]
    return (
        f"| | {name} | {short(ratio['median'])} ({short(ratio['q1'])} to {short(ratio['q3'])}) "
        f"| {'+' if over['median'] >= 0 else '-'}{nanoseconds(abs(over['median']))} | {cost} |"
    )


def goal_lines(report: dict) -> list[str]:
    """A row for each goal: the limit, the measured value, and whether it is within the limit."""
    rows = []
    for case in report["cases"]:
        for goal in case.get("goals", []):
            limit = f"{goal['word']} {amount(goal['at_most'], goal['unit'])}"
            rows.append(
                f"| {case['id']} | {goal_words(goal)} | {limit} "
                f"| {measured(goal)} | {verdict(goal)} |"
            )
    if not rows:
        return []
    head = ["", "| case | what | at most | measured (middle half) | |", "|---|---|---:|---:|---|"]
    return head + rows


def goal_words(goal: dict) -> str:
    """The subject of a goal: one contender over, or minus, another; and the alternative limit."""
    words = goal["of"]
    if goal["over"] is not None:
        words += f" {'/' if goal['unit'] == 'ratio' else 'minus'} {goal['over']}"
    other = goal.get("otherwise")
    if other is not None:
        limit = amount(other["at_most"], other["unit"])
        words += f" (else {goal_words(other)}, {limit}: {measured(other)})"
    return words


def measured(goal: dict) -> str:
    """The median, and the middle half."""
    median, low, high = (amount(goal["value"][n], goal["unit"]) for n in ("median", "q1", "q3"))
    return f"{median} ({low} to {high})"


def measure_lines(report: dict) -> list[str]:
    """A row for each number that is no time."""
    if not report.get("measures"):
        return []
    lines = ["", "| counted | at most | measured | |", "|---|---:|---:|---|"]
    for measure in report["measures"]:
        limit = measure["at_most"]
        lines.append(
            f"| {measure['id']} | {'' if limit is None else plain(limit)} "
            f"| {plain(measure['value'])} {measure['unit']} "
            f"| {'' if limit is None else verdict(measure)} |"
        )
    return lines


def figure_lines(report: dict) -> list[str]:
    """A row for each figure that has nothing beside it: the median of its samples."""
    if not report.get("figures"):
        return []
    lines = [
        "",
        "| figure | median (middle half) | least to most | samples |",
        "|---|---:|---:|---:|",
    ]
    for figure in report["figures"]:
        median, low, high, least, most = (
            short(figure[name]) for name in ("median", "q1", "q3", "least", "most")
        )
        lines.append(
            f"| {figure['id']} | {median} {figure['unit']} ({low} to {high}) "
            f"| {least} to {most} | {figure['samples']} |"
        )
    return lines


def verdict(judged: dict) -> str:
    return "met" if judged["met"] else "**not met**"


def amount(value: float, unit: str) -> str:
    """A ratio in usual form, a tenth as 1/10; or microseconds."""
    if unit == "us":
        return f"{value:.3g} us"
    return f"1/{1 / value:.3g}" if 0 < value < 0.95 else short(value)


def short(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def plain(value: float) -> str:
    """A count unchanged, any other number to three digits."""
    return f"{value:.0f}" if value == int(value) else short(value)


def nanoseconds(value: float) -> str:
    """A duration in a usual unit."""
    if value >= 1e6:
        return f"{short(value / 1e6)} ms"
    return f"{value:.0f} ns" if value < 1000 else f"{short(value / 1000)} us"
