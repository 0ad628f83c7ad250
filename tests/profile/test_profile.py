"""The profiles of programs whose course is known."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import atomic, xp
from cudasync.array.memory import free_lists
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.log.combiner import COMBINER
from cudasync.errors import CudasyncError
from cudasync.profile.analysis import axes, places
from cudasync.profile.record import VIRTUAL, Dependency, Record
from cudasync.profile.wait_reasons import blockers, reason_of
from cudasync.testing import HostLatch, Latch


def test_an_op_waited_for_what_it_reads_and_is_told_over_what():
    value = cs.Var("loss")
    with cs.profile() as profile, cs.Engine(workers=2) as engine:
        latch = HostLatch()
        engine.push(latch.wait, writes=value, name="train")
        reader = engine.push(lambda: None, reads=value, name="report")
        latch.release()
    why = profile.why(reader)
    assert why[0].what == "an op"
    assert why[0].dependency.hazard == "RAW"
    assert why[0].dependency.on.name == "train"
    assert "RAW over variable 'loss'" in str(why)
    assert f"pushed at {__file__}" in str(why)


@pytest.mark.parametrize(("reads", "hazard"), [(True, "WAR"), (False, "WAW")])
def test_writes_wait_for_reads_and_writes(reads, hazard):
    value = cs.Var("value")
    with cs.profile() as profile, cs.Engine(workers=2) as engine:
        latch = HostLatch()
        how = {"reads": value} if reads else {"writes": value}
        engine.push(latch.wait, name="first", **how)
        writer = engine.push(lambda: None, writes=value, name="second")
        latch.release()
    assert profile.why(writer)[0].dependency.hazard == hazard


def test_an_op_waited_for_the_one_worker():
    with cs.profile() as profile, cs.Engine(workers=1) as engine:
        latch = HostLatch()
        engine.push(latch.wait, name="long")
        short = engine.push(lambda: None, name="short")
        latch.release()
    reason = profile.why(short)[0]
    assert (reason.what, reason.blocker.name) == ("a worker", "long")


def test_an_op_waited_for_its_pusher():
    with cs.profile() as profile, cs.Engine(workers=1) as engine:
        op = engine.push(lambda: None, name="alone")
        op.wait()
    assert profile.why(op)[0].what == "the pusher"


def test_copies_have_their_bytes_and_kernels_wait_for_them():
    with cs.profile() as profile:
        x = cs.array(np.arange(1000, dtype=np.float32), device=0)
        y = x + 1
        y.numpy()
    copies = {each.kind: each.size_bytes for each in profile.moved}
    assert copies == {"HtoD": 4000, "DtoH": 4000}
    add = next(each for each in profile.records if each.name == "add")
    on = {(each.on.name, each.hazard) for each in add.before}
    assert ("array", "RAW") in on
    text = str(profile)
    for word in ("add", "critical path", "overlap", "idle", "hidden behind compute"):
        assert word in text


def test_a_graph_has_one_op_a_segment_with_its_nodes():
    x = cs.array(np.ones(100, np.float32), device=0)
    with cs.graph() as recorded:
        y = x + 1
        z = y * 2
    executable = recorded.instantiate()
    with cs.profile() as profile:
        executable.launch()
        cs.waitall()
    assert float(z.numpy()[0]) == 4.0
    assert [len(each.nodes) for each in profile.records if each.nodes] == [2]


def test_ops_take_the_same_way_as_without_a_profile_and_nothing_is_left_of_it():
    with cs.Engine() as engine:
        with cs.profile():
            assert engine._is_plain
            assert engine._is_direct
            assert all(pool.is_plain for pool in engine._pools.values())
            engine.push(lambda: None).wait()
        assert engine._ledger.recorder is None
        with cs.profile(nodes=True):
            # Only the long way measures the nodes of a launch.
            assert not engine._is_direct
        assert engine._is_direct
        assert atomic._TOLD == []
        tail = COMBINER.log.tail
        assert tail.append == tail.entries.append
        with cs.profile() as again:
            engine.push(lambda: None, name="second")
        assert [each.name for each in again.records] == ["second"]


def test_a_pool_that_is_made_meanwhile_is_as_any():
    with cs.Engine() as engine:
        with cs.profile():
            with cs.Engine(pools={"io": 1}) as inner:
                assert all(pool.is_plain for pool in inner._pools.values())
            further = WorkerPool("later", 1, engine._ledger, weakref.ref(engine))
            assert further.is_plain
        with cs.Engine(trace=True) as traced, cs.profile():
            assert not WorkerPool("later", 1, traced._ledger, weakref.ref(traced)).is_plain


def test_an_op_that_its_pusher_runs_is_on_that_thread():
    with cs.Engine() as engine, cs.use(engine):
        x = cs.zeros(4, device="cpu")
        engine.waitall()
        with cs.profile() as p:
            x + 1
    (record,) = [each for each in p.records if each.name == "add"]
    assert record.place == "MainThread" or record.place.startswith("worker ")
    assert record.has_times


def test_a_profile_inside_of_a_profile_and_of_a_trace():
    with cs.Engine(trace=True) as engine, cs.profile() as outer:
        engine.push(lambda: None, name="one")
        with cs.profile() as inner:
            engine.push(lambda: None, name="two")
        assert [each.name for each in engine.trace()] == ["one", "two"]
    assert [each.name for each in outer.records] == ["one", "two"]
    assert [each.name for each in inner.records] == ["two"]


def test_device_ops_have_times_in_each_of_two_nested_profiles():
    with cs.Engine() as engine, cs.use(engine):
        issuers = type(engine._issuer)
        x = cs.zeros(64, device=0)
        with cs.profile() as outer:
            x + 1
            with cs.profile() as inner:
                x + 2
                engine.waitall()
            assert [each.name for each in inner.records if each.kind == "kernel"] == ["add"]
            x + 3
        assert type(engine._issuer) is issuers
    for profile, count in ((outer, 3), (inner, 1)):
        adds = [each for each in profile.records if each.kind == "kernel"]
        assert len(adds) == count
        assert all(each.has_times for each in adds)
    # Both profiles mark the start themselves, one directly behind the other.
    (one,) = (each for each in inner.records if each.kind == "kernel")
    (same,) = (each for each in outer.records if each.number == one.number)
    assert one.end_us - one.start_us == pytest.approx(same.end_us - same.start_us, abs=1.0)


def test_the_start_of_an_op_is_marked_once_also_if_its_function_fails():
    def fails(stream):
        raise ZeroDivisionError

    with cs.Engine() as engine:
        device = cs.Device(0)
        var = cs.Var("v")
        with cs.profile() as profile:
            engine.push(lambda stream: None, writes=var, device=device).wait()
            with counted_calls() as seen:
                for fn in (fails, lambda stream: None):
                    engine.push(fn, writes=var, device=device).exception()
            engine.clear_errors()
    # A start and an end for each op.
    assert seen["cuEventRecord"] == 4
    assert [each.has_times for each in profile.records] == [True, False, True]


def test_an_op_whose_start_cannot_be_marked_runs_and_has_no_times(monkeypatch):
    def refuse(stream, event):
        raise CudasyncError("no event")

    with cs.Engine() as engine:
        x = cs.zeros(8, device=0)
        engine.waitall()
        with cs.profile() as profile, monkeypatch.context() as patch:
            patch.setattr(cs.Stream, "record_reused", refuse)
            with cs.use(engine):
                y = x + 1
            engine.waitall()
        assert float(y.numpy()[0]) == 1.0
    (add,) = (each for each in profile.records if each.kind == "kernel")
    assert not add.has_times
    assert not add.has_failed
    assert add.place is not None


def test_a_profile_without_ops_has_no_heading_without_lines():
    with cs.profile() as profile:
        pass
    assert str(profile) == "0 ops, 0 without times"


def test_a_profile_keeps_no_result_and_no_engine_alive():
    class Thing:
        pass

    def run():
        with cs.profile() as profile, cs.Engine() as engine:
            thing = engine.push(Thing).result()
            found = weakref.ref(thing)
        return profile, found, weakref.ref(engine)

    profile, thing, engine = run()
    gc.collect()
    assert thing() is None
    assert engine() is None
    assert len(profile.records) == 1


def test_an_op_that_failed_is_there_without_times():
    with cs.Engine() as engine, cs.profile() as profile:
        op = engine.push(lambda: 1 / 0, name="wrong")
        with pytest.raises(cs.OpError):
            op.wait()
        engine.clear_errors()
    (record,) = profile.records
    assert record.has_failed
    assert not record.has_times
    assert "did not run" in str(profile.why(op))


def test_what_was_not_pushed_inside_is_refused():
    with cs.Engine() as engine:
        op = engine.push(lambda: None)
        with (
            cs.profile() as profile,
            pytest.raises(ValueError, match="incomplete inside its block"),
        ):
            profile.why(op)
        with pytest.raises(ValueError, match="was not pushed"):
            profile.why(op)
    with pytest.raises(ValueError, match="one block"), profile:
        pass


def test_the_reason_is_found_by_op_name_array_and_variable():
    with cs.Engine() as engine:
        with cs.profile() as profile:
            x = cs.zeros(8, np.float32)
            total = xp.sum(x[:4] + 1)
            report = cs.Var("report")
            engine.push(lambda: None, reads=total, writes=report, name="report")
            op = engine.push(lambda: None, reads=total, writes=report, name="report")
        assert profile.why("report") == profile.why(report) == profile.why(op)
        assert profile.why(total)[0].record.name == "sum"
        # The last op that wrote any of its bytes.
        assert profile.why(x[2:])[0].record.name == profile.why(x)[0].record.name
        for missing in ("nonsense", cs.Var("unused"), cs.zeros(8)):
            with pytest.raises(ValueError, match="block of this profile pushed no op"):
                profile.why(missing)
        with pytest.raises(ValueError, match=r"'nonsense', but .*and 1 more"):
            profile.why("nonsense")
        with pytest.raises(TypeError, match="takes an op, the name of ops, an array"):
            profile.why(3)


def test_a_long_chain_of_reasons_is_ten_lines_of_text():
    with cs.Engine(workers=1) as engine:
        with cs.profile() as profile:
            value, latch = cs.Var("value"), HostLatch()
            ops = [engine.push(latch.wait, writes=value)]
            ops += [engine.push(lambda: None, writes=value) for _ in range(20)]
            latch.release()
        why = profile.why(ops[-1])
    assert len(why) > 10
    lines = str(why).splitlines()
    assert len(lines) == 10
    assert lines[-1] == f"and {len(why) - 9} more: the list has them"


def test_a_wait_on_a_virtual_clock_is_part_of_the_run_of_what_it_waits_for():
    def op(number, place, start, end, *before):
        # Its end was noticed late, since the host compiled a kernel.
        made = Record(number, f"op {number}", "kernel", "here:1", 0.0, device=0, place=place)
        made.clock, made.start_us, made.end_us, made.found_us = VIRTUAL, start, end, 1e6
        made.before = [Dependency(each, "RAW", "x") for each in before]
        return made

    first = op(1, "stream 1", 0.0, 100.0)
    busy = op(2, "stream 2", 0.0, 60.0)
    behind = op(3, "stream 2", 100.0, 120.0, first)
    last = op(4, "stream 2", 120.0, 130.0)
    records = [first, busy, behind, last]
    blocked = blockers(records)
    assert [reason_of(each, blocked).waited_us for each in records] == [0.0, 0.0, 40.0, 20.0]


def test_no_bound_is_above_the_elapsed_time():
    def op(number, queued, start, end):
        made = Record(number, f"op {number}", "host", "here:1", queued, place="worker")
        made.start_us, made.end_us, made.found_us = start, end, end
        return made

    # The first could have started 90 us earlier, where the second had not been pushed.
    (axis,) = axes([op(1, 0.0, 90.0, 100.0), op(2, 95.0, 100.0, 110.0)])
    assert axis.unbounded_us == axis.elapsed_us == 20.0


def test_the_trace_has_the_form_that_viewers_read(tmp_path):
    with cs.profile() as profile:
        x = cs.array(np.arange(100, dtype=np.float32), device=0)
        (x + 1).numpy()
        value = cs.Var("v")
        cs.engine().push(lambda: None, writes=value, name="first")
        cs.engine().push(lambda: None, reads=value, name="second")
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert malformed(trace) == []
    spans = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    assert sorted(each["name"] for each in spans) == sorted(r.name for r in profile.records)
    second = next(each for each in spans if each["name"] == "second")
    assert second["args"]["push site"].startswith(__file__)
    assert second["args"]["reads"] == ["variable 'v'"]
    flows = [each["id"] for each in trace["traceEvents"] if each["ph"] == "s"]
    assert flows


def test_with_no_end_of_workers_ops_begin_when_they_are_pushed_or_can():
    def op(number, queued, start, end, *before):
        made = Record(number, f"op {number}", "host", "here:1", queued, place="worker")
        made.start_us, made.end_us, made.found_us = start, end, end
        made.before = [Dependency(each, "RAW", "x") for each in before]
        return made

    first = op(1, 0.0, 10.0, 110.0)
    beside = op(2, 5.0, 110.0, 210.0)
    behind = op(3, 6.0, 210.0, 220.0, first)
    (axis,) = axes([first, beside, behind])
    assert (axis.elapsed_us, axis.critical_us, axis.unbounded_us) == (210.0, 110.0, 110.0)
    (axis,) = axes([first, beside])
    assert (axis.critical_us, axis.unbounded_us) == (100.0, 105.0)


def test_a_worker_is_idle_for_the_pusher_until_the_push_and_then_to_begin():
    def op(number, queued, start, end):
        made = Record(number, f"op {number}", "host", "here:1", queued, place="worker")
        made.start_us, made.end_us, made.found_us = start, end, end
        return made

    (place,) = places([op(1, 0.0, 10.0, 20.0), op(2, 60.0, 90.0, 100.0)])
    assert place.reasons == {
        "waits for the pushing thread": 40.0,
        "waits before starting ready work": 30.0,
    }
    assert place.idle_us == 70.0


def test_ops_in_flight_are_counted_from_their_push_to_their_end(tmp_path):
    latch = HostLatch()
    with cs.profile() as profile, cs.Engine(workers=1) as engine:
        for _ in range(5):
            engine.push(latch.wait)
        latch.release()
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counts = [each["args"]["ops in flight"] for each in events if each["name"] == "ops in flight"]
    assert (len(counts), max(counts), counts[-1]) == (10, 5, 0)


def test_a_malformed_trace_is_found():
    flow = {"ph": "s", "id": 1, "name": "RAW", "cat": "d", "ts": 5, "pid": 1, "tid": 1}
    assert malformed({"traceEvents": [flow]})
    assert malformed({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "pid": 1, "tid": 1}]})


def malformed(trace) -> list[str]:
    """Entries that the trace event format does not allow, and entries without a named track."""
    found = []
    named, spans, flows = set(), [], {}
    for each in trace["traceEvents"]:
        missing = {"ph", "name", "pid", "tid"} - each.keys()
        missing |= {"X": {"ts", "dur"}, "C": {"ts", "args"}, "M": {"args"}}.get(
            each["ph"], {"ts"}
        ) - each.keys()
        if missing:
            found.append(f"{each} lacks {missing}")
            continue
        if each["ph"] == "M" and each["name"] == "thread_name":
            named.add((each["pid"], each["tid"]))
        elif each["ph"] == "X":
            spans.append(each)
            if each["dur"] < 0:
                found.append(f"{each['name']} ends before it begins")
        elif each["ph"] in "sf":
            flows.setdefault(each["id"], []).append(each["ph"])
        elif each["ph"] == "C":
            found += [f"{each}" for v in each["args"].values() if not isinstance(v, int | float)]
        elif each["ph"] != "M":
            found.append(f"{each['ph']} is no phase that is known here")
    found += [f"{s['name']} has no track" for s in spans if (s["pid"], s["tid"]) not in named]
    found += [f"flow {id_} is {ends}" for id_, ends in flows.items() if sorted(ends) != ["f", "s"]]
    return found


def test_a_view_of_no_bytes_orders_nothing():
    x = cs.zeros(16)
    with cs.profile() as p:
        nothing = cs.engine().push(lambda: None, writes=[x[4:4]])
        cs.engine().push(lambda: None, reads=[x])
        cs.engine().push(lambda: None, writes=[x])
    assert all(each.on.number != nothing.number for r in p.records for each in r.before)
    assert [each.hazard for each in p.records[-1].before] == ["WAR"]


def independent_results(x):
    for _ in range(6):
        _ = x + 1


def test_waits_for_memory_that_is_used_again_are_told_from_those_for_data(monkeypatch):
    """Independent results, for which there is no memory of their own."""
    x = xp.ones(1 << 16)
    for is_short in (False, True):
        monkeypatch.setattr(free_lists.Budget, "has_room_for", lambda *_: not is_short)  # noqa: B023
        for each in free_lists.POOLS.values():
            each.sizes.clear()
        independent_results(x)
        cs.waitall()
        with cs.profile() as found, Latch(cs.Device(0)) as latch:
            cs.engine().push(latch.hold, writes=[x], device=0)
            independent_results(x)
            latch.release()
        (axis,) = [each for each in found.axes if each.clock != "wall clock"] or found.axes
        reuses = [each for record in found.records for each in record.before if each.is_reuse]
        if not is_short:
            assert "used again" not in str(found)
            assert axis.reuse_us == 0
            continue
        assert axis.unbounded_fresh_us < axis.unbounded_us
        assert axis.reuse_us > 0
        assert "with memory of its own for each result" in str(found)
        assert "waits for memory that was used again: " in str(found)
        assert "memory of what add made, pushed at " in reuses[-1].over
        (first, *_) = found.why("add")
        assert first.dependency.is_reuse
        assert "memory of what add made" in str(first)
