"""The bench that runs Warp's tests under checks, without Warp."""

from __future__ import annotations

import json
import sys

from bench.checkout import ROOT
from bench.suites import runner, unittest_module, warp_suite
from cudasync.softgpu import install

TESTS = """
import unittest


class Tests(unittest.TestCase):
    def test_done(self):
        pass

    def test_wrong(self):
        self.assertEqual(1, 2)

    @unittest.skip("not today")
    def test_left(self):
        pass

    def test_known(self):
        raise AssertionError("this test was named as finished")
"""


def test_each_test_of_a_module_is_recorded(tmp_path, monkeypatch):
    (tmp_path / "recorded_tests.py").write_text(TESTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    record = tmp_path / "record"
    install()  # A failure asks whether the context is lost.
    unittest_module.run("recorded_tests", str(record), ["recorded_tests.Tests.test_known"])
    events = [json.loads(line) for line in record.read_text().splitlines()]
    outcomes = {each["test"].rpartition(".")[2]: each for each in events if "outcome" in each}
    assert {name: each["outcome"] for name, each in outcomes.items()} == {
        "test_done": "passed",
        "test_left": "skipped",
        "test_wrong": "failed",
    }
    assert outcomes["test_wrong"]["reason"] == "AssertionError: 1 != 2"
    assert events[-1] == {"over": True}


def test_modules_with_memory_of_cpp_code_run_without_mem(tmp_path):
    (tmp_path / "geometry").mkdir()
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "test_streams.py").write_text("")
    (tmp_path / "test_math.py").write_text("wp.array(x)")
    (tmp_path / "geometry" / "test_bvh.py").write_text("tree = wp.Bvh(lowers, uppers)")
    first, second = warp_suite.modules(tmp_path)
    assert (first, second) == ("warp.tests.geometry.test_bvh", "warp.tests.test_math")
    assert warp_suite.kinds("mem,race", first, tmp_path) == "race"
    assert warp_suite.kinds("mem,race", second, tmp_path) == "mem,race"
    assert warp_suite.kinds(None, second, tmp_path) == ""


def test_a_deadline_is_processor_time(tmp_path):
    busy = "print('begun', flush=True)\nwhile True: pass"
    status, said = runner.limited([sys.executable, "-c", busy], tmp_path, 1, {})
    assert (status, said) == (None, "begun\n")
    done = "print('done')"
    assert runner.limited([sys.executable, "-c", done], tmp_path, 1, {}) == (0, "done\n")


LATE = """
import json, sys

module, record, *finished = sys.argv[1:]
for name in ("quick", "in the middle", "endless", "last"):
    if name in finished:
        continue
    with open(record, "a") as out:
        print(json.dumps({"begun": name}), file=out)
    while name == "endless" or (name == "in the middle" and "quick" not in finished):
        pass
    with open(record, "a") as out:
        print(json.dumps({"test": name, "outcome": "passed"}), file=out)
with open(record, "a") as out:
    print(json.dumps({"over": True}), file=out)
"""


def test_only_a_test_that_takes_a_whole_process_has_missed_the_deadline(tmp_path):
    child = tmp_path / "child.py"
    child.write_text(LATE)
    outcomes = runner.run_module(child, "module", 1, through=())
    assert [(each["test"], each["outcome"]) for each in outcomes] == [
        ("quick", "passed"),
        ("in the middle", "passed"),
        ("endless", "lost"),
        ("last", "passed"),
    ]
    assert outcomes[2]["reason"] == "not done in 1 s"


def test_findings_are_kept_without_the_folders_of_a_machine():
    said = f"""before
cudasync check: race: two writes
    write called at {ROOT}/bench/suites/warp_module.py:64
    write called at /some/lib/site-packages/numba/test_it.py:3
after"""
    (found,) = runner.findings_in("module", said)
    assert found["outcome"] == runner.FOUND
    assert found["reason"] == (
        "race: two writes | write called at bench/suites/warp_module.py:64"
        " | write called at numba/test_it.py:3"
    )
