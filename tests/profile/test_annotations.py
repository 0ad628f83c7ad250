"""Annotations are in profiles, and go to NVIDIA's tools by the wheel; else nothing is kept."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading

import pytest
from helpers.arrays.reference_blas import c_compiler
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import run_text

import cudasync as cs
from cudasync.profile import annotation, nvtx_ranges
from cudasync.profile.page import content

PATIENCE_S = 60


@cs.annotate("doubles")
def double(x):
    """Twice as much."""
    return 2 * x


def spans(p):
    return {each.name: (each.start_us, each.end_us) for each in p.annotations}


def test_a_profile_has_blocks_and_functions_with_their_lines():
    with cs.profile() as p, cs.annotate("outer"):
        with cs.annotate("inner"):
            pass
        assert double(4) == 8
    assert [each.name for each in p.annotations] == ["outer", "inner", "doubles"]
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    found = spans(p)
    begin, end = found["outer"]
    assert 0 <= begin <= found["inner"][0] <= found["inner"][1] <= found["doubles"][0]
    assert found["doubles"][1] <= end
    outer, inner, doubles = p.annotations
    assert outer.place == "MainThread, annotations"
    # A nested annotation is on a track below the outer one.
    assert inner.place == doubles.place == "MainThread, annotations 2"
    assert inner.push_site.rpartition(":")[0] == __file__


def test_one_is_of_the_thread_that_entered_it():
    shared, both = cs.annotate("shared"), threading.Barrier(2)

    def work():
        with shared:
            both.wait(PATIENCE_S)

    with cs.profile() as p, cs.Engine(workers=1) as engine:
        threads = [threading.Thread(target=work, name=name) for name in ("one", "other")]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE_S)
        engine.push(lambda: double(1))
    places = [each.place for each in p.annotations]
    assert sorted(places[:2]) == ["one, annotations", "other, annotations"]
    assert places[2].startswith("worker compute 0")


def test_nobody_listens_nothing_is_kept():
    assert annotation.LISTENERS == []
    before = cs.annotate("before")
    with before:
        assert before._open == []
        assert double(1) == 2
        with cs.profile() as p:
            # The annotation is left inside the profile, but was entered before.
            before.__exit__(None, None, None)
    assert p.annotations == []
    assert annotation.LISTENERS == []


def test_an_exception_ends_it():
    def fails():
        with cs.annotate("fails"):
            raise KeyError("x")

    with cs.profile() as p, pytest.raises(KeyError):
        fails()
    assert list(spans(p)) == ["fails"]


def test_every_form_of_a_profile_shows_them_and_ops_are_counted_without(tmp_path):
    value = cs.Var("value")
    with cs.profile() as p, cs.Engine(workers=1) as engine, cs.annotate("<epoch>"):
        engine.push(lambda: None, writes=value, name="work").wait()
    assert [row.name for row in p.rows] == ["work"]
    assert [place.ops for place in p.places] == [1]
    assert "\nannotations:\n<epoch> " in str(p)
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (shown,) = [each for each in events if each.get("cat") == "annotation"]
    assert shown["name"] == "<epoch>"
    assert shown["args"]["entered at"].startswith(__file__)
    running = [each["args"]["ops running"] for each in events if each["name"] == "ops running"]
    assert max(running) == 1
    found = content([*p.records, *p.annotations])
    assert found["ops"][-1]["kind"] == "annotation"
    assert found["ops"][-1]["next"] is None
    assert len({each["number"] for each in found["ops"]}) == len(found["ops"])
    p.html(tmp_path / "page.html")
    assert "\\u003cepoch\\u003e" in (tmp_path / "page.html").read_text()


def test_what_can_not_be_annotated_is_refused():
    with pytest.raises(TypeError, match=r"is a string, not <function.*cs\.annotate\('name'\)"):
        cs.annotate(double)

    def numbers():
        yield 1

    async def later():
        pass

    for each in (numbers, later):
        with pytest.raises(TypeError, match="annotate a block inside"):
            cs.annotate("x")(each)


def test_nvtx_without_the_wheel_says_what_to_do():
    program = "import sys; sys.modules['nvtx'] = None; import cudasync as cs; cs.Engine"
    code, printed = run_text(program, PATIENCE_S, CUDASYNC_NVTX="1")
    assert code == 1
    assert printed.endswith(
        "ModuleNotFoundError: CUDASYNC_NVTX=1 needs the nvtx wheel: pip install nvtx,"
        " or unset CUDASYNC_NVTX\n"
    )


def test_another_value_is_refused_and_0_is_none(monkeypatch):
    monkeypatch.setenv("CUDASYNC_NVTX", "0")
    nvtx_ranges.start()
    assert annotation.LISTENERS == []
    monkeypatch.setenv("CUDASYNC_NVTX", "on")
    with pytest.raises(ValueError, match="CUDASYNC_NVTX=on: set it to 1"):
        nvtx_ranges.start()


@pytest.fixture
def tool(tmp_path):
    """A program's output, and the ranges that a tool received."""
    if importlib.util.find_spec("nvtx") is None or c_compiler() is None:
        pytest.skip("needs the nvtx wheel and a C compiler")
    source, library = (
        ROOT / "tests" / "helpers" / "interfaces" / "nvtx_tool.c",
        tmp_path / "tool.so",
    )
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library]
    subprocess.run([c_compiler(), *options, source], check=True)

    def told(program):
        seen = tmp_path / "seen"
        environment = {"NVTX_INJECTION64_PATH": str(library), "NVTX_TOOL_FILE": str(seen)}
        code, printed = run_text(program, PATIENCE_S, CUDASYNC_NVTX="1", **environment)
        assert code == 0, printed
        return printed, seen.read_text().split("\n")[:-1]

    return told


PUSHES = """
import cudasync as cs, numpy as np
with cs.Engine(workers=1, trace={trace}) as engine, cs.use(engine):
    with cs.annotate("part"):
        engine.push(lambda: None, name="of the host").wait()
    with cs.profile() as p:
        engine.push(lambda: 1 / 0, name="fails")
        y = cs.zeros(8, device=0) + 1
        try:
            engine.waitall()
        except cs.OpError:
            engine.clear_errors()
    print(*sorted({{each.name for each in p.records}} & {{"fails", "add"}}))
    engine.push(lambda: None, name="behind").wait()
print(engine.trace()[0].name if {trace} else "no trace")
"""


@pytest.mark.parametrize(("trace", "first"), [(False, "no trace"), (True, "of the host")])
def test_a_tool_is_told_of_annotations_and_ops_and_profiles_go_on(tool, trace, first):
    printed, told = tool(PUSHES.format(trace=trace))
    assert printed == f"add fails\n{first}\n"
    assert told[:4] == [
        "cudasync push part", "cudasync push of the host", "cudasync pop", "cudasync pop",
    ]  # fmt: skip
    names = [line.partition(" push ")[2] for line in told if " push " in line]
    # The order also holds after the profile is over.
    assert names.index("fails") < names.index("behind")
    assert {"fails", "add"} <= set(names)
    # The ranges end also where an op failed.
    assert len(names) == told.count("cudasync pop")


def test_a_name_too_many_is_told_as_one_of_more(monkeypatch):
    class Domain:
        """The wheel keeps each name for ever in such a domain."""

        def get_event_attributes(self, *, message):
            return message

    monkeypatch.setattr(nvtx_ranges.Ranges, "most_names", 2)
    ranges = nvtx_ranges.Ranges(Domain())
    said = [ranges.attributes(name) for name in ("a", "b", "c", "a", "d")]
    assert said == ["a", "b", "of more names", "a", "of more names"]
