"""Nodes of graphs in a profile: their names, and the times of their starts and ends."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from helpers.driver.call_results import held

import cudasync as cs
from cudasync.graph import segment_timing

SIZE = 1000


def recorded():
    """Three kernels, of which two are independent, and two functions behind them."""
    a, b = cs.zeros(SIZE, np.float32), cs.zeros(SIZE, np.float32)
    calls: list[str] = []
    with cs.graph() as g:
        a += 1
        b += 2
        a += b
        cs.engine().push(lambda: calls.append("one"), reads=a, writes=cs.Var(), name="one")
        cs.engine().push(lambda: calls.append("two"), reads=a, writes=cs.Var(), name="two")
    return g.instantiate(), a, calls


def profiled(launches=1, *, nodes):
    exe, a, calls = recorded()
    with cs.profile(nodes=nodes) as profile:
        for _ in range(launches):
            exe.launch()
    # Each launch adds one array's total so far to the other array.
    assert a.numpy()[0] == sum(1 + 2 * number for number in range(1, launches + 1))
    assert calls == ["one", "two"] * launches
    return profile, exe


def wrong_times(profile, exe):
    """Nodes that ran outside their op, or before their predecessors had ended."""
    found = []
    for record in profile.records:
        over = {}
        part = next(p for p in exe.parts if p.name == record.name and len(p.nodes) > 1)
        assert [each.name for each in record.node_times] == [node.name for node in part.nodes]
        for node, each in zip(part.nodes, record.node_times, strict=True):
            over[node] = each.end_us
            begins = max([record.start_us, *(over[o] for o in node.before if o in over)])
            if not begins <= each.start_us <= each.end_us <= record.end_us:
                found.append((record.number, node.index))
    return found


def test_functions_of_a_graph_have_times_without_being_asked_for():
    profile, _ = profiled(2, nodes=False)
    assert [(row.name, row.count) for row in profile.nodes if row.device is None] != []
    assert {row.name: row.count for row in profile.nodes} == {"one": 2, "two": 2}
    assert all(row.push_site.startswith(__file__) for row in profile.nodes)
    kernels = next(record for record in profile.records if record.device == 0)
    assert not kernels.node_times
    assert len(kernels.nodes) == 3
    said = str(profile)
    assert "nodes of graphs:" in said
    assert "without times of their own (cs.profile(nodes=True)): " in said
    assert all(name in said for name in kernels.nodes)


def test_nodes_of_a_device_have_times_where_they_are_asked_for():
    profile, exe = profiled(3, nodes=True)
    assert not wrong_times(profile, exe)
    assert sum(row.count for row in profile.nodes if row.device == 0) == 9
    assert "without times" not in str(profile).split("\n", 1)[1]


def test_times_that_are_of_another_node_are_found(monkeypatch):
    def first(self, origin):
        found = SINCE(self, origin)
        return [(node, *found[0][1:]) for node, *_ in found]

    monkeypatch.setattr(segment_timing.Timed, "since", first)
    profile, exe = profiled(nodes=True)
    assert wrong_times(profile, exe)


SINCE = segment_timing.Timed.since


def test_launches_in_flight_have_events_of_their_own():
    a = cs.zeros(SIZE, np.float32)
    with cs.graph() as g:
        a += 1
        a *= 2
    with g.instantiate(without=("fusion",)) as exe:
        gate = cs.Stream(0)
        with cs.profile(nodes=True) as profile:
            with held(gate.handle):
                cs.take_over(a, after=gate)
                for _ in range(3):
                    exe.launch()
            cs.waitall()
        assert a.numpy()[0] == 14
        starts = [each.start_us for record in profile.records for each in record.node_times]
        assert len(starts) == len(set(starts)) == 6
        # The timings of this profile are reused by the next.
        timings = exe.parts[0]._timings
        assert len(timings._idle) == 3
        with cs.profile(nodes=True):
            exe.launch()
        assert len(timings._idle) == 3


def test_a_function_that_fails_is_the_last_with_a_time():
    with cs.Engine(workers=1) as engine:
        value = cs.Var()
        with cs.graph() as g:
            cs.engine().push(lambda: None, writes=value, name="well")
            cs.engine().push(lambda: 1 / 0, writes=value, name="fails")
            cs.engine().push(lambda: None, reads=value, name="needs it")
        exe = g.instantiate()
        with cs.profile() as profile, pytest.raises(cs.OpError, match=r"\(fails\)"):
            exe.launch().wait()
        engine.clear_errors()
    assert profile.records[0].has_failed


def test_a_trace_has_nodes_within_their_launches(tmp_path):
    profile, _ = profiled(nodes=True)
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [each for each in events if each["ph"] == "X"]
    launches = {each["args"]["number"]: each for each in slices if each["cat"] != "node"}
    nodes = [each for each in slices if each["cat"] == "node"]
    assert len(nodes) == 5
    for node in nodes:
        launch = launches[node["args"]["launch"]]
        assert launch["ts"] <= node["ts"]
        assert node["ts"] + node["dur"] <= launch["ts"] + launch["dur"] + 1e-6
    tracks: dict = {}
    for node in nodes:
        tracks.setdefault((node["pid"], node["tid"]), []).append((node["ts"], node["dur"]))
    for track in tracks.values():
        track.sort()
        for (start, length), (following, _) in itertools.pairwise(track):
            assert start + length <= following + 1e-6


@pytest.mark.parametrize("mode", ["serial", "async"])
def test_a_profile_with_nodes_changes_no_result(mode):
    with cs.Engine(mode) as engine, cs.use(engine):
        profiled(2, nodes=True)
