"""The reports of benches: goals judged, promises shown, tables in their place.

These tests assert no number of a run.
"""

from __future__ import annotations

import compare
import pytest
from helpers.repository.checkout import ROOT

from bench.harness import measurement, tables
from bench.harness.goals import MICROSECONDS, Goal, judged

TAKEN = {"mine": {0: 1000.0, 1: 2000.0, 2: 9000.0}, "its": {0: 4000.0, 2: 4500.0}}


@pytest.mark.parametrize(
    ("goal", "measured"),
    [
        (Goal("mine", "its", 1.2), 1.125),
        (Goal("mine", "its", 0.7, MICROSECONDS), 0.75),
        (Goal("mine", None, 2.0, MICROSECONDS), 2.0),
        (Goal("mine", None, 1.9, MICROSECONDS), 2.0),
    ],
)
def test_a_goal_is_judged_by_the_median_over_the_rounds_of_both(goal, measured):
    result = judged(goal, TAKEN)
    assert result["value"]["median"] == pytest.approx(measured)
    assert result["met"] is (measured <= goal.at_most)


def test_a_goal_that_is_missed_is_met_by_what_is_enough_instead_and_by_nothing_else():
    missed = Goal("mine", "its", 0.5)
    for other, is_met in ((Goal("mine", None, 3.0, MICROSECONDS), True), (missed, False)):
        result = judged(Goal("mine", "its", 0.5, otherwise=other), TAKEN)
        assert result["met"] is is_met
        assert result["otherwise"] == judged(other, TAKEN)
        assert tables.goal_words(result).startswith("mine / its (else mine")


def test_the_table_of_musts_has_every_promise_and_no_wish():
    def goal(of, word):
        return judged(Goal(of, "its", 0.5, word=word), TAKEN | {of: TAKEN["mine"]})

    limited, free = {"id": "a: calls", "at_most": 2}, {"id": "a: others", "at_most": None}
    reports = [
        {
            "cases": [{"id": "a.x", "goals": [goal("mine", "must"), goal("wish", "goal")]}],
            "measures": [each | {"value": 3, "unit": "", "met": False} for each in (limited, free)],
        },
        {"cases": [{"id": "b.y", "goals": [goal("other", "must")]}], "measures": []},
    ]
    rows = tables.musts(reports).splitlines()[2:]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| a.x", "mine / its", "1/2"],
        ["| a", "calls", "2"],
        ["| b.y", "other / its", "1/2"],
    ]
    assert all(row.endswith("| **not met** |") for row in rows)


def test_a_result_without_a_gil_is_kept_beside_the_other():
    names = {compare.kept_name({"program": "bench", "gil": gil}) for gil in (True, False)}
    assert len(names) == 2
    run = {"python": "3.14.7", "free_threaded": True}
    assert {tables.build(run | {"gil": gil}) for gil in (True, False)} == {
        ", free-threaded build with its GIL on",
        ", without a GIL",
    }


def test_a_goal_and_a_count_that_are_missed_are_said():
    run = measurement.Session(small=True, rounds=1)
    both = [measurement.Contender(name, lambda loops: 1e-3, lambda: 7) for name in ("base", "mine")]
    goals = [Goal("mine", "base", 0.1)]
    run.add(measurement.Case("case", both, "base", most_loops=1, goals=goals))
    run.measure("case: calls", 3, "per launch", 2)
    run.measure("case: others", 3, "per launch")
    run.run()
    report = {"cases": measurement.summary(run), "measures": run.measures}
    assert compare.unmet(report) == [
        "case: mine / base is 1, must 1/10",
        "case: calls is 3 per launch, must 2",
    ]
    assert "**not met**" in tables.goal_lines(report)[-1]
    assert tables.measure_lines(report)[-2:] == [
        "| case: calls | 2 | 3 per launch | **not met** |",
        "| case: others |  | 3 per launch |  |",
    ]


def test_compare_refuses_what_is_no_result(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"program": "x"}')
    assert compare.main(["--tables", str(broken)]) == 2
    assert compare.main(["--tables", str(tmp_path / "absent.json")]) == 2
    assert capsys.readouterr().out == ""
    assert compare.main(["bench_nothing"]) == 2


def test_a_small_run_of_the_one_command_is_shown_and_not_kept(capfd):
    kept = {path: path.read_bytes() for path in (ROOT / "bench").rglob("*.[jm][sd]*")}
    assert compare.main(["--small", "bench_engine"]) == 0
    assert "SMALL SIZES" in capfd.readouterr().out
    assert {path: path.read_bytes() for path in (ROOT / "bench").rglob("*.[jm][sd]*")} == kept


def test_the_tables_are_written_between_their_marks_and_nowhere_else(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{compare.BEGIN}what stood here before\n{compare.END}\nafter\n")
    reports = compare.kept()
    compare.write_readme(readme, reports)
    text = readme.read_text()
    assert text.startswith("before\n\n")
    assert text.endswith("\nafter\n")
    assert "what stood here before" not in text
    assert all(tables.table(report) in text for report in reports)
    readme.write_text("no marks\n")
    with pytest.raises(ValueError, match="tables"):
        compare.write_readme(readme, reports)


def test_the_bench_readme_shows_the_kept_results_and_no_others(tmp_path):
    shown = (ROOT / "bench" / "README.md").read_text()
    reports = compare.kept()
    assert not any(report["small"] for report in reports)
    copy = tmp_path / "README.md"
    copy.write_text(shown)
    compare.write_readme(copy, reports)
    assert copy.read_text() == shown
