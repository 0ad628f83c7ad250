"""Every bench runs at its small size, and the harness measures what it claims.

These tests assert no timing. They assert that the same work was done, that ratios come from one
round, and that a run's report is complete.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import bench_driver
import bench_engine
import bench_pushers
import compare
import pytest
from helpers.repository.checkout import ROOT

from bench.engine import workloads
from bench.engine.engines import Asyncio, Graphlib, SerialLoop, ThreadPool, TwoThreadPools
from bench.engine.locked_engine import LockedEngine, LockedVar
from bench.harness import command, measurement, tables
from bench.launches import bursts

FACTS = {"commit", "date", "python", "numpy", "cuda_bindings", "llvmlite", "cpu", "cores", "device"}


def test_the_one_command_runs_every_bench_there_is():
    programs = {path.stem for path in (ROOT / "bench").glob("bench_*.py")}
    assert set(compare.PROGRAMS) == programs


# A plain run takes only the first, the quickest.
@pytest.mark.sampled(len(compare.PROGRAMS))
@pytest.mark.parametrize(
    "program", sorted(compare.PROGRAMS, key=lambda name: name != "bench_engine")
)
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
    assert tables.table(report) in done.stdout


def test_the_baseline_has_every_call_under_the_same_name():
    from bench.driver import baseline

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
    """The transitive closure of the edges equals that of the plain definition of a hazard."""

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
    assert closure(workload.predecessors) == closure(plain)


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
@pytest.mark.parametrize(
    "make", [lambda: ThreadPool(2), lambda: TwoThreadPools(2), Graphlib, Asyncio]
)
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


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_the_lock_based_twin_does_the_work_of_the_serial_loop(workload):
    engine = LockedEngine(2)
    variables = [LockedVar() for _ in range(workload.variables)]
    tally = workloads.Tally(workload)
    for function, (reads, writes) in zip(tally.functions, workload.ops, strict=True):
        engine.push(
            function,
            reads=[variables[number] for number in reads],
            writes=[variables[number] for number in writes],
        )
    engine.waitall()
    assert tally.checksum() == tallied(SerialLoop(), workload)
    engine.close()


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_the_lock_based_twin_loses_no_op_of_several_pushing_threads(workload):
    serial = workloads.Census(workload)
    for function in serial.functions:
        function()
    engine = LockedEngine(2)
    found = bench_pushers.contend("twin", engine, LockedVar, workload, 4)
    assert found.checksum() == serial.checksum()
    engine.close()


def test_the_lock_based_twin_raises_the_first_failure():
    engine = LockedEngine(1)
    engine.push(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.waitall()
    with pytest.raises(ZeroDivisionError):
        engine.close()


@pytest.mark.parametrize("how", ["one lost", "one twice"])
def test_the_census_sees_an_op_that_is_lost_or_done_twice(how):
    def census(functions):
        counted = workloads.Census(workloads.random(60, 6))
        for function in functions(counted.functions):
            function()
        return counted.checksum()

    wrong = {
        "one lost": lambda functions: functions[:30] + functions[31:],
        "one twice": lambda functions: functions[:31] + functions[30:],
    }[how]
    assert census(wrong) != census(lambda functions: functions)
    assert census(lambda functions: functions[::-1]) == census(lambda functions: functions)


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
    made = measurement.Session(small=True, **options)
    made.add(measurement.Case("case", contenders, baseline, operations=2, most_loops=1))
    return made


def contender(name, times, checksum=7):
    """A contender that takes the given times, one a sample. The first is for calibration."""
    left = list(times)
    return measurement.Contender(name, lambda loops: left.pop(0) * loops, lambda: checksum)


def test_a_ratio_is_between_samples_of_the_same_round():
    """The machine becomes ten times slower after the first round, and the ratio stays the same."""
    run = session(contender("base", [1e-6, 1e-5]), contender("mine", [3e-6, 3e-5]), rounds=2)
    run.run()
    (case,) = measurement.summary(run)
    mine = case["contenders"]["mine"]
    assert mine["ratio"] == pytest.approx(dict.fromkeys(mine["ratio"], 3.0))
    assert case["contenders"]["base"]["ns"]["least"] == pytest.approx(500)
    assert mine["overhead_ns"]["most"] == pytest.approx(10_000)


def test_a_slow_contender_sits_out_and_is_compared_where_it_took_part():
    slow = measurement.Contender("slow", lambda loops: loops * 1e-3, lambda: 7, every=2)
    run = session(contender("base", [1e-6, 1e-5, 1e-4]), slow, rounds=3)
    run.run()
    (case,) = measurement.summary(run)
    assert case["contenders"]["slow"]["rounds"] == 2
    assert case["contenders"]["slow"]["ratio"]["most"] == pytest.approx(1e3)
    assert case["contenders"]["slow"]["ratio"]["least"] == pytest.approx(10)


def test_a_contender_that_does_more_operations_is_counted_with_its_own_number():
    longer = measurement.Contender("longer", lambda loops: loops * 1e-3, lambda: 7, operations=20)
    run = session(contender("base", [1e-4, 1e-4]), longer)
    run.run()
    (case,) = measurement.summary(run)
    assert case["contenders"]["longer"]["ratio"]["median"] == pytest.approx(1)


def test_a_peer_that_is_not_installed_is_named_with_the_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask.threaded", None)
    monkeypatch.setitem(sys.modules, "dask._task_spec", None)
    run = measurement.Session(small=True)
    assert bench_engine.optional(run, 2) == []
    assert "dask" in run.absent["dask"]
    assert "dask" not in run.versions


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("shape", ["chain", "independent", "fan", "mixed"])
def test_what_is_placed_by_hand_is_ordered_wherever_it_conflicts(shape, streams):
    mixed = tuple(reads for reads, _ in workloads.random(80, 5).ops)
    burst = mixed if shape == "mixed" else bursts.SHAPES[shape](20)
    assert not unordered(burst, bursts.placed(burst, streams))


def test_a_wait_that_is_left_out_of_the_placing_is_seen():
    burst = bursts.fan(20)
    steps = bursts.placed(burst, 4)
    waiting = next(number for number, step in enumerate(steps) if step.awaits)
    steps[waiting] = bursts.Step(*burst[waiting], steps[waiting].stream, (), is_awaited=True)
    assert unordered(burst, steps)


def unordered(burst, steps):
    """The pairs of conflicting launches that neither a stream nor a wait orders."""
    before = []
    for number, step in enumerate(steps):
        same = [earlier for earlier in range(number) if steps[earlier].stream == step.stream]
        assert all(steps[earlier].is_awaited for earlier in step.awaits)
        direct = {*same, *step.awaits}
        before.append(direct.union(*(before[earlier] for earlier in direct)))
    return [
        (earlier, number)
        for number, (source, target) in enumerate(burst)
        for earlier, (its_source, its_target) in enumerate(burst[:number])
        if (its_target in (source, target) or its_source == target)
        and earlier not in before[number]
    ]


def test_contenders_that_did_different_work_are_an_error():
    run = session(contender("base", []), contender("lazy", [], checksum=8))
    with pytest.raises(measurement.ChecksumError, match="lazy 0x8"):
        run.run()


def test_a_parameter_has_two_sizes_and_may_be_set():
    assert measurement.Session(small=True).parameter("width", small=1, large=9) == 1
    assert measurement.Session().parameter("width", small=1, large=9) == 9
    assert measurement.Session(settings={"width": 5}).parameter("width", small=1, large=9) == 5


def run_command(monkeypatch, build, *options):
    monkeypatch.setattr(sys, "argv", ["bench", "--small", *options])
    return command.main("bench", "A bench.", build)


def build_two(first, second):
    def build(session):
        session.add(measurement.Case("case", (first, second), "base", most_loops=1))

    return build


def test_an_interrupt_ends_the_run_between_two_samples(monkeypatch, capsys):
    def interrupted(loops):
        os.kill(os.getpid(), signal.SIGINT)
        return 1e-3

    other = measurement.Contender("base", lambda loops: 1e-3, lambda: 7)
    build = build_two(other, measurement.Contender("mine", interrupted, lambda: 7))
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
