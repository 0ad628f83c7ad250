"""Servers that are killed at any write: they come back with everything that was acknowledged."""

from __future__ import annotations

import os
import shutil

import pytest
from helpers.distributed.killed_writers import run_killed
from helpers.distributed.server_jobs import KEYS, SERVERS, Job

from cudasync.kvstore import array_file
from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.servers.server import Server


def steps(path, other):
    """A program: each step's name and what it does with a job. `other` gets checkpoints."""
    made = [("init", Job.init)]
    for number in range(1, 7):
        key = number % SERVERS
        made.append((f"push {number}", lambda job, k=key, n=number: job.push(k, n)))
        if number == 2:
            made.append(("checkpoint", lambda job: job.worker.checkpoint(None)))
        if number in (3, 5):
            made.append((f"to {number}", lambda job: job.worker.checkpoint(str(other))))
    return made


def plays(path, other, report):
    """Run the program, and report each step once it is acknowledged."""
    with Job(path, long_bytes=900) as job:
        for name, does in steps(path, other):
            does(job)
            report(name)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The values before each step, and after the last; and those of each checkpoint."""
    path, other = (tmp_path_factory.mktemp(each) for each in ("kept", "other"))
    with Job(path) as job:
        found, checkpoints = [job.values()], [[None] * SERVERS]
        for name, does in steps(path, other):
            does(job)
            found.append(job.values())
            if name.startswith("to"):
                checkpoints.append(job.values())
    return found, checkpoints


def came_back(path, done, found):
    """Raise an AssertionError unless a new job has what was acknowledged, and at most one more."""
    with Job(path) as job:
        values = job.values()
        if done == 0:
            # The keys get their values one after the other.
            zeros = [0.0] * 3
            assert all(each in (None, zeros) for each in values), values
        else:
            assert values in found[done : done + 2], (done, values)
        job.init()
        before = job.values()
        job.push(0, 1)
        assert job.values() != before, "it goes on"
    for each in os.listdir(path):
        assert each.endswith((".state", ".journal", ".lock")), "a temporary file is left"


def kills(tmp_path_factory, expected, at=0):
    """Kill the program at each of its writes in turn, from this one on; returns how many it has."""
    found, checkpoints = expected
    while True:
        path, other = (tmp_path_factory.mktemp(each) for each in ("kept", "other"))

        def program(report, path=path, other=other):
            plays(path, other, report)

        was_killed, done = run_killed(program, at)
        came_back(path, len(done), found)
        restored(other, done, checkpoints)
        shutil.rmtree(path)
        shutil.rmtree(other)
        if not was_killed:
            assert len(done) == len(found) - 1
            return at
        at += 1


def restored(other, done, checkpoints):
    """A folder of checkpoints gives the last that was acknowledged, or the next, as a whole."""
    count = sum(each.startswith("to") for each in done)
    with Job(None) as job:
        try:
            job.worker.restore(str(other))
        except FileNotFoundError:
            assert count == 0
            return
        assert job.values() in checkpoints[count : count + 2]
        job.worker.checkpoint(str(other))
        assert sorted(os.listdir(other)) == [f"server-{each}.state" for each in KEYS]


def test_a_server_that_is_killed_at_any_write_comes_back_with_all_that_was_acknowledged(
    tmp_path_factory, expected
):
    assert kills(tmp_path_factory, expected) > 60


def test_a_change_that_is_made_before_it_is_written_down_is_found(
    tmp_path_factory, expected, monkeypatch
):
    """The planted bug: a push is acknowledged, and written down with the next one."""
    plain = Server._note

    def notes(self, record, arrays=None):
        late = vars(self).setdefault("late", [])
        if record[0] != "push":
            plain(self, record, arrays)
            return
        late.append((record, [each.copy() for each in arrays]))
        if len(late) > 1:
            plain(self, *late.pop(0))

    monkeypatch.setattr(Server, "_note", notes)
    with pytest.raises(AssertionError):  # noqa: PT012
        # At the first push.
        kills(tmp_path_factory, expected, at=17)
        kills(tmp_path_factory, expected)


def test_checkpoints_that_replace_each_other_one_by_one_are_found(
    tmp_path_factory, expected, monkeypatch
):
    """The planted bug: each server's file replaces the older one at once."""
    plain = Server.checkpoint

    def at_once(self, worker, arrays, path, stamp=0):
        found = plain(self, worker, arrays, path, stamp)
        if path is not None:
            self.keep(worker, arrays, path, stamp)
        return found

    monkeypatch.setattr(Server, "checkpoint", at_once)
    with pytest.raises((AssertionError, ValueError)):  # noqa: PT012
        # Between the files of the second checkpoint that goes to the folder.
        kills(tmp_path_factory, expected, at=62)
        kills(tmp_path_factory, expected)


def test_temporary_files_that_nobody_deletes_are_found(tmp_path_factory, expected, monkeypatch):
    monkeypatch.setattr(array_file, "delete_leftovers", lambda path: None)
    with pytest.raises(AssertionError, match="temporary"):  # noqa: PT012
        # While the first checkpoint is written.
        kills(tmp_path_factory, expected, at=23)
        kills(tmp_path_factory, expected)


def test_a_restore_that_is_killed_at_any_write_is_whole_or_refused(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    with Job(None) as job:
        job.init()
        for key in KEYS:
            job.push(key, 7)
        wanted = job.values()
        job.worker.checkpoint(str(source))
    at, ends = 0, set()
    while True:
        path = tmp_path_factory.mktemp("kept")
        with Job(path) as job:
            job.init()
            before = job.values()

        def restores(report, path=path):
            with Job(path) as job:
                job.worker.restore(str(source))

        was_killed, _ = run_killed(restores, at)
        try:
            with Job(path) as job:
                assert job.values() in (before, wanted), "half of the servers returned"
                ends.add(job.values() == wanted)
        except ServerLost:
            ends.add(None)
        if not was_killed:
            break
        at += 1
    assert ends == {True, False, None}
