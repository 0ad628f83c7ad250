"""A server's folder: damage and missing files are refused, as is a folder in use.

What a server refuses is not in its journal.
"""

from __future__ import annotations

import os
import shutil
from random import Random

import numpy as np
import pytest
from helpers.distributed.killed_writers import run_killed
from helpers.distributed.server_jobs import KEYS, Job, journal_of
from hypothesis import given
from hypothesis import strategies as st

from cudasync.kvstore import array_file
from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.servers import folder, journal
from cudasync.kvstore.servers.server import Question, Server


def alone(path, pushes=5):
    """The value of a job of one server that ended, and the lengths of its journal."""
    with Job(path, 1) as job:
        job.init()
        sizes = []
        for number in range(1, 1 + pushes):
            job.push(0, number)
            sizes.append(journal_of(path).stat().st_size)
        return job.values(), sizes


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A journal's bytes, and the values at its end and by its length."""
    path = tmp_path_factory.mktemp("whole")
    values, sizes = alone(path)
    return journal_of(path).read_bytes(), values, sizes


def begun_with(path, content):
    """The values of a job that begins with this journal, or the error that refuses it."""
    (path / "server-0.0.journal").write_bytes(content)
    try:
        with Job(path, 1) as job:
            return job.values()
    except ValueError as error:
        return error


def flips(content, count):
    """Bits of every kind of byte, all of the first records' among them."""
    chosen = Random(7).sample(range(8 * len(content)), count)
    return [*range(0, 8 * 60, 5), *chosen]


def finds_each_flip(path, whole):
    content, values, _ = whole
    for bit in flips(content, 100):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        found = begun_with(path, bytes(changed))
        assert isinstance(found, ValueError) or found == values, f"bit {bit} lost what follows"
        assert "damaged at byte" in str(found), bit


def test_one_changed_bit_anywhere_in_a_journal_is_refused(tmp_path, whole):
    finds_each_flip(tmp_path, whole)


def test_a_length_outside_the_checksum_is_found(tmp_path, whole, monkeypatch):
    """The planted bug: the frame's own checksum is not compared."""

    plain = journal.Records._next

    def trusts(self, file, size):
        at = file.tell()
        frame = file.read(journal._FRAME.size)
        _, head, body, _ = journal._FRAME.unpack(frame) if len(frame) == 20 else (0, 0, 0, 0)
        file.seek(at)
        if at + 24 + head + body > size:
            return None
        return plain(self, file, size)

    monkeypatch.setattr(journal.Records, "_next", trusts)
    with pytest.raises(AssertionError, match="lost what follows"):
        finds_each_flip(tmp_path, whole)


def test_a_journal_that_is_cut_off_gives_its_whole_records(tmp_path, whole):
    content, _, sizes = whole
    for size in range(sizes[-3], len(content), 3):
        values = begun_with(tmp_path, content[:size])
        pushes = sum(size >= each for each in sizes)
        with Job(None, 1) as model:
            model.init()
            for number in range(1, 1 + pushes):
                model.push(0, number)
            assert values == model.values(), size


@given(cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_journal_that_lost_its_middle_is_refused(tmp_path_factory, whole, cut):
    content, values, sizes = whole
    start, stop = sorted(round(each * sizes[-2]) for each in cut)
    found = begun_with(tmp_path_factory.mktemp("cut"), content[:start] + content[stop:])
    assert isinstance(found, ValueError) if start < stop else found == values


def test_records_that_are_missing_as_a_whole_are_refused(tmp_path, whole):
    content, _, sizes = whole
    for number in range(len(sizes) - 2):
        changed = content[: sizes[number]] + content[sizes[number + 1] :]
        assert isinstance(begun_with(tmp_path, changed), ValueError)
        twice = content[: sizes[number + 1]] + content[sizes[number] :]
        assert isinstance(begun_with(tmp_path, twice), ValueError)


def several(path):
    """Jobs whose folder has a checkpoint and two journals behind it; the values at the end."""
    with Job(path) as job:
        job.init()
        for number in range(1, 4):
            job.push(0, number)
            job.push(1, number)
            if number == 1:
                job.worker.checkpoint(None)
    with Job(path) as job:
        for each in job.servers.running:
            # The checkpoint that did not come about: its journal is there.
            kept = each._folder
            kept._journal = kept._begun(kept._generation + 1, kept._journal.chain)
        job.init()
        for key in KEYS:
            job.push(key, 9)
        return job.values()


def test_a_file_of_a_server_that_is_missing_is_refused(tmp_path):
    """Any of its files, or all of them, while the other server has its own."""
    values = several(tmp_path / "all")
    names = sorted(os.listdir(tmp_path / "all"))
    mine = [each for each in names if each.startswith("server-1") and not each.endswith("lock")]
    assert [each.partition(".")[2] for each in mine] == ["1.journal", "2.journal", "state"]
    for number in range(2 ** len(mine)):
        gone = [each for at, each in enumerate(mine) if number >> at & 1]
        for server in KEYS:
            path = tmp_path / f"{number} {server}"
            shutil.copytree(tmp_path / "all", path)
            for each in gone:
                os.unlink(path / each.replace("server-1", f"server-{server}"))
            if not gone or gone == [mine[1]]:
                # Without its last journal a folder is as if the job had ended before.
                with Job(path) as job:
                    assert gone or job.values() == values
                continue
            with pytest.raises((ValueError, ServerLost), match=r"missing|unlike server 0"):
                Job(path)


def test_a_journal_that_lost_its_last_record_is_refused_if_another_follows(tmp_path):
    several(tmp_path)
    path = tmp_path / "server-0.1.journal"
    records = journal.Records(str(path))
    ends = [records.end for _ in records]
    path.write_bytes(path.read_bytes()[: ends[-2]])
    with pytest.raises(ValueError, match="has lost its end"):
        Job(tmp_path)


def test_a_folder_in_use_is_refused_and_a_killed_server_leaves_it_free(tmp_path):
    with Job(tmp_path) as job:
        job.init()
        with pytest.raises(ValueError, match=rf"in use by a server of process {os.getpid()}"):
            Job(tmp_path)

        def refused(report):
            try:
                Job(tmp_path)
            except ValueError as error:
                report(error)

        assert "in use" in run_killed(refused, 1 << 30)[1][0]
        job.push(0, 3)
        values = job.values()
    with Job(tmp_path) as job:
        assert job.values() == values

    def is_killed(report):
        with Job(tmp_path) as job:
            job.init()
            os.fsync(0)

    assert run_killed(is_killed, 5)[0]
    Job(tmp_path).servers.shutdown()


def test_a_child_of_a_fork_does_not_hold_the_folder_of_its_parent(tmp_path):
    """The child lives on, with a copy of the parent's files, and the folder is free."""
    into, out_of = os.pipe()[::-1]
    into_parent, is_up = os.pipe()
    job = Job(tmp_path)
    child = os.fork()
    if not child:
        os.close(into)
        os.write(is_up, b"1")
        os.read(out_of, 1)
        os._exit(0)
    try:
        os.read(into_parent, 1)
        job.servers.shutdown()
        Job(tmp_path).servers.shutdown()
    finally:
        os.close(into)
        os.waitpid(child, 0)
        for each in (out_of, into_parent, is_up):
            os.close(each)


def test_a_claim_that_refuses_nobody_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(folder.fcntl, "flock", lambda *_: None)
    with Job(tmp_path), Job(tmp_path) as other:
        other.init()


# Requests that a server refuses, once a key "w" has its value, and has an optimizer or not.
REFUSED = {
    "another shape": ("push", [1, 0, "w", None, False], [np.ones(3, np.float32)]),
    "another dtype": ("push", [1, 0, "w", None, False], [np.ones(4)]),
    "a lost push": ("push", [1, 5, "w", None, False], [np.ones(4, np.float32)]),
    "an unknown key": ("push", [1, 0, "v", None, False], [np.ones(4, np.float32)]),
    "a wrong packing": ("push", [1, 0, "w", ["2bit"], False], [np.ones(4, np.uint8)]),
    "an unknown optimizer": ("set_optimizer", ["sdg", {}], []),
    "an unknown setting": ("set_optimizer", ["sgd", {"rate": 1.0}], []),
    "a setting of another kind": ("set_optimizer", ["sgd", {"learning_rate": "1"}], []),
    "a state of another shape": ("set_states", ["w", ["momentum"]], [np.ones(3, np.float32)]),
    "a state without its array": ("set_states", ["w", ["mean"]], [np.ones(4, np.float32)]),
    "a value without an array": ("init", ["x"], []),
    "bool by subtraction": ("push", [1, 0, "b", None, False], [np.ones(4, bool)]),
    "bool by momentum": ("push", [1, 0, "b", None, False], [np.ones(4, bool)]),
    "a barrier of nobody": ("arrive", [1, 1, ""], []),
    "data of another job": ("join", [0, 1, "other", True], []),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_what_is_refused_is_not_written_down(tmp_path, name, momentum):
    """A request that is in the journal and then fails would fail at every start."""
    server = Server(0, 1, tmp_path)
    for key, dtype in (("w", np.float32), ("b", bool)):
        server.ask(Question("0-a", "init", [key], [np.ones(4, dtype)]))
    settings = {"learning_rate": 1.0, "momentum": momentum}
    server.ask(Question("0-a", "set_optimizer", ["sgd", settings], []))
    before = journal_of(tmp_path).read_bytes()
    try:
        server.ask(Question("0-b", *REFUSED[name]))
        is_refused = False
    except Exception:
        is_refused = True
    assert is_refused == (journal_of(tmp_path).read_bytes() == before)
    assert is_refused or (name, momentum) in {
        ("bool by subtraction", 0.5), ("bool by momentum", 0.5), ("a state without its array", 0.0),
        ("a state of another shape", 0.0),
    }  # fmt: skip
    value = server.shard.held("w").value.tolist()
    server.close()
    again = Server(0, 1, tmp_path)
    assert again.shard.held("w").value.tolist() == value
    again.close()


def test_an_update_that_fails_is_not_written_down(tmp_path, monkeypatch):
    """Memory that runs out before the update, as with an optimizer of the whole key."""
    with Job(tmp_path, 1) as job:
        job.init()
        job.worker.ask_all("set_optimizer", "lamb", {})
        value = job.values()
        arithmetic = job.servers.running[0].shard._arithmetic

        def no_memory(*_):
            raise MemoryError

        monkeypatch.setattr(arithmetic.optimizer, "update", no_memory)
        with pytest.raises(MemoryError):
            job.push(0, 1)
        assert job.values() == value
    with Job(tmp_path, 1) as job:
        assert job.values() == value


def test_an_interrupted_record_is_cut_off_before_the_next_one(tmp_path, monkeypatch):
    """Ctrl-C between two writes of a record: the record does not count, and the next one does."""
    made = journal.Journal(str(tmp_path / "journal"))
    made.append("first", [np.ones(3)])
    plain, writes = journal.write_all, []

    def interrupts(handle, x):
        writes.append(len(x))
        plain(handle, x)
        if len(writes) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(journal, "write_all", interrupts)
    with pytest.raises(KeyboardInterrupt):
        made.append("second", [np.ones(2), np.ones(3)])
    made.append("third", [])
    made.close()
    assert [about for about, _ in journal.Records(made.path)] == ["first", "third"]


def test_a_writer_that_lives_keeps_its_temporary_file(tmp_path, monkeypatch):
    """Two writers of one file at once: each has its own temporary file, and the last one wins."""
    path, plain, nested = tmp_path / "file", array_file.write_all, []

    def writes(handle, x):
        if not nested:
            nested.append(True)
            array_file.save(path, {"by": "other"}, [])
        plain(handle, x)

    monkeypatch.setattr(array_file, "write_all", writes)
    array_file.save(path, {"by": "first"}, [])
    assert array_file.load(path)[0] == {"by": "first"}
    assert os.listdir(tmp_path) == ["file"]
