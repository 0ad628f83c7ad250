"""Every bench runs at its small size, and the harness measures what it says it does.

No number is asserted here, only that the same work was done, that ratios are taken inside one
round, and that what a run reports is complete.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import bench_driver
import command
import compare
import harness
import pytest
import workloads
from engines import Asyncio, Graphlib, SerialLoop, ThreadPool
from helpers.house import ROOT

FACTS = {"commit", "date", "python", "numpy", "cuda_bindings", "llvmlite", "cpu", "cores", "device"}


@pytest.mark.parametrize("program", ["bench_driver", "bench_engine"])
def test_a_bench_runs_small_and_reports_all_it_should(program, tmp_path):
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, f"bench/{program}.py", "--small", "--json", str(result)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(result.read_text())
    assert set(report) >= FACTS
    assert report["small"] is True
    assert all(len(case["contenders"]) >= 2 for case in report["cases"])
    assert compare.table(report) in done.stdout


def test_the_baseline_has_every_call_under_the_same_name():
    import baseline

    for name in bench_driver.CALLS:
        assert callable(getattr(bench_driver, name))
        assert callable(getattr(baseline, name))


SHAPES = [
    workloads.indep(20),
    workloads.chain(20),
    workloads.random(60, 6),
    workloads.fan(7, 3),
]


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_edges_order_every_pair_that_conflicts_and_no_other(workload):
    """The transitive closure of the edges is that of the plain definition of a hazard."""

    def closure(predecessors):
        before = []
        for direct in predecessors:
            before.append(set(direct).union(*(before[earlier] for earlier in direct)))
        return before

    plain = []
    for number, (reads, writes) in enumerate(workload.ops):
        conflicts = [
            earlier
            for earlier, (its_reads, its_writes) in enumerate(workload.ops[:number])
            if {*reads, *writes} & set(its_writes) or set(writes) & set(its_reads)
        ]
        plain.append(conflicts)
    assert closure(workload.predecessors()) == closure(plain)


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
@pytest.mark.parametrize("make", [lambda: ThreadPool(2), Graphlib, Asyncio])
def test_a_rival_does_the_work_of_the_serial_loop(make, workload):
    engine = make()
    try:
        assert tallied(engine, workload) == tallied(SerialLoop(), workload)
    finally:
        engine.close()


def tallied(engine, workload):
    tally = workloads.Tally(workload)
    engine.prepare(workload, tally.functions)()
    return tally.checksum()


@pytest.mark.parametrize("how", ["reversed", "one lost", "one twice"])
def test_the_checksum_sees_an_engine_that_breaks_the_order(how):
    workload = workloads.random(60, 6)
    tally = workloads.Tally(workload)
    functions = {
        "reversed": tally.functions[::-1],
        "one lost": tally.functions[:30] + tally.functions[31:],
        "one twice": tally.functions[:31] + tally.functions[30:],
    }[how]
    for function in functions:
        function()
    assert tally.checksum() != tallied(SerialLoop(), workload)


def session(*contenders, baseline="base", **options):
    made = harness.Session(small=True, **options)
    made.add(harness.Case("case", contenders, baseline, operations=2, most_loops=1))
    return made


def contender(name, times, checksum=7):
    """A contender that takes the given times, one a sample; the first is for calibration."""
    left = list(times)
    return harness.Contender(name, lambda loops: left.pop(0) * loops, lambda: checksum)


def test_a_ratio_is_between_samples_of_the_same_round():
    """The machine turns ten times slower after the first round: the ratio does not."""
    run = session(contender("base", [1e-6, 1e-5]), contender("mine", [3e-6, 3e-5]), rounds=2)
    run.run()
    (case,) = harness.summary(run)
    mine = case["contenders"]["mine"]
    assert mine["ratio"] == pytest.approx(dict.fromkeys(mine["ratio"], 3.0))
    assert case["contenders"]["base"]["ns"]["least"] == pytest.approx(500)
    assert mine["overhead_ns"]["most"] == pytest.approx(10_000)


def test_contenders_that_did_different_work_are_an_error():
    run = session(contender("base", []), contender("lazy", [], checksum=8))
    with pytest.raises(harness.ChecksumError, match="lazy 0x8"):
        run.run()


def test_a_parameter_has_two_sizes_and_may_be_set():
    assert harness.Session(small=True).parameter("width", small=1, large=9) == 1
    assert harness.Session().parameter("width", small=1, large=9) == 9
    assert harness.Session(settings={"width": 5}).parameter("width", small=1, large=9) == 5


def run_command(monkeypatch, build, *options):
    monkeypatch.setattr(sys, "argv", ["bench", "--small", *options])
    return command.main("bench", "A bench.", build)


def build_two(first, second):
    def build(session):
        session.add(harness.Case("case", (first, second), "base", most_loops=1))

    return build


def test_an_interrupt_ends_the_run_between_two_samples(monkeypatch, capsys):
    def interrupted(loops):
        os.kill(os.getpid(), signal.SIGINT)
        return 1e-3

    other = harness.Contender("base", lambda loops: 1e-3, lambda: 7)
    build = build_two(other, harness.Contender("mine", interrupted, lambda: 7))
    assert run_command(monkeypatch, build) == command.INTERRUPTED
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "interrupted; nothing was written\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_different_work_and_unknown_parameters_are_one_line_and_a_status(monkeypatch, capsys):
    build = build_two(contender("base", [1e-3] * 9), contender("lazy", [1e-3] * 9, checksum=8))
    assert run_command(monkeypatch, build) == 1
    assert "different work" in capsys.readouterr().err
    assert run_command(monkeypatch, build, "--set", "colour=3") == 2
    assert "no parameter colour" in capsys.readouterr().err
    assert run_command(monkeypatch, build, "--only", "nowhere") == 2
    assert "no case" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--rounds", "0"], ["--set", "width"], ["--set", "=3"], ["--json", "no/such/folder/x.json"]],
)
def test_a_wrong_option_is_a_usage_line(monkeypatch, capsys, options):
    with pytest.raises(SystemExit) as left:
        run_command(monkeypatch, build_two, *options)
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_compare_refuses_what_is_no_result(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"program": "x"}')
    assert compare.main([str(broken)]) == 2
    assert compare.main([str(tmp_path / "absent.json")]) == 2
    assert capsys.readouterr().out == ""


def test_the_bench_readme_shows_the_kept_results():
    shown = (ROOT / "bench" / "README.md").read_text()
    for kept in (ROOT / "bench" / "results").glob("*.json"):
        report = json.loads(kept.read_text())
        assert not report["small"]
        assert compare.table(report) in shown
