"""A server's shard: duplicates, retries and restores, in any order, equal a model."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.repository.full_disk import short_files
from hypothesis import given
from hypothesis import strategies as st

from cudasync.kvstore import array_file
from cudasync.kvstore.servers import update_tape
from cudasync.kvstore.servers.shard import Shard

events = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "again", "checkpoint", "restart")),
        st.integers(0, 2),
        st.sampled_from((1, 2)),
        st.integers(-4, 4),
    ),
    max_size=25,
)


def forgets_sequences(path):
    made, _ = Shard.restore(path)
    made._sequences = dict.fromkeys(made._sequences, 0)
    return made


def played(path, program, restore):
    """Workers keep what they pushed, and send it again after a restart of the server."""
    shard, seen = Shard("sgd", learning_rate=1.0), {1: 0, 2: 0}
    for key in seen:
        shard.init(key, np.zeros(2))
    shard.checkpoint(path)
    sent = {worker: [] for worker in range(3)}
    for verb, worker, key, number in program:
        if verb == "push":
            sent[worker].append((key, number))
            shard.push(worker, len(sent[worker]), key, np.full(2, float(number)))
        elif verb == "again" and sent[worker]:
            shard.push(worker, len(sent[worker]), sent[worker][-1][0], np.full(2, 9.0))
        elif verb == "checkpoint":
            shard.checkpoint(path)
        elif verb == "restart":
            shard = restore(path)
            for who, pushed in sent.items():
                for at in range(shard.last(who), len(pushed)):
                    shard.push(who, at + 1, pushed[at][0], np.full(2, float(pushed[at][1])))
        for key in seen:
            version, value = shard.pull(key)
            mine = [n for pushed in sent.values() for k, n in pushed if k == key]
            assert (version, value.tolist()) == (len(mine), [-float(sum(mine))] * 2)
            assert version >= seen[key]
            seen[key] = version


@given(program=events)
def test_each_push_counts_once(tmp_path_factory, program):
    played(tmp_path_factory.mktemp("shard") / "file", program, lambda path: Shard.restore(path)[0])


def test_a_table_of_sequences_that_is_lost_is_found(tmp_path):
    program = [("push", 0, 1, 3), ("checkpoint", 0, 1, 0), ("restart", 0, 1, 0)]
    with pytest.raises(AssertionError):
        played(tmp_path / "file", program, forgets_sequences)


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "lamb"])
def test_a_restored_shard_goes_on_with_the_same_bits(tmp_path, name):
    rng = np.random.default_rng(1)
    one = Shard(name, weight_decay=0.1)
    one.init("w", rng.normal(size=5).astype(np.float32))
    one.push(0, 1, "w", rng.normal(size=5).astype(np.float32))
    one.checkpoint(tmp_path / "file")
    other, g = Shard.restore(tmp_path / "file")[0], rng.normal(size=5).astype(np.float32)
    assert one.push(0, 2, "w", g) == other.push(0, 2, "w", g) == 2
    assert one.pull("w")[1].tobytes() == other.pull("w")[1].tobytes()


def test_a_file_that_can_not_be_written_leaves_the_old_checkpoint_whole(tmp_path):
    shard, file = Shard("sgd"), tmp_path / "file"
    shard.init("w", np.ones(3))
    shard.checkpoint(file)
    before = file.read_bytes()
    shard.push(0, 1, "w", np.ones(3))
    with short_files(), pytest.raises(OSError, match="is unchanged"):
        shard.checkpoint(file)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


def test_what_does_not_fit_changes_nothing():
    shard = Shard("sgd")
    shard.init("w", np.ones(3))
    for error, call in (
        (KeyError, lambda: shard.push(0, 1, "v", np.ones(3))),
        (ValueError, lambda: Shard().set_optimizer("sdg", {})),
        (ValueError, lambda: shard.push(0, 1, "w", np.ones(2))),
        (TypeError, lambda: shard.push(0, 1, "w", np.ones(3, np.float32))),
    ):
        with pytest.raises(error):
            call()
    assert shard.last(0) == shard.pull("w")[0] == 0
    bare = Shard()
    bare.init("w", np.ones(3))
    with pytest.raises(ValueError, match="set_optimizer"):
        bare.push(0, 1, "w", np.ones(3))


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "lamb"])
def test_blocks_have_the_bits_of_the_whole(name, monkeypatch):
    rng = np.random.default_rng(2)
    start, steps = rng.normal(size=(7, 3)), rng.normal(size=(3, 7, 3))
    values = []
    for size in (1 << 15, 4):
        monkeypatch.setattr(update_tape, "BLOCK", size)
        shard = Shard(name, weight_decay=0.1, clip=1.0)
        shard.init("w", start)
        for number, each in enumerate(steps, 1):
            shard.push(0, number, "w", each)
        values.append(shard.pull("w")[1])
    assert values[0].tobytes() == values[1].tobytes()
    assert values[0].tobytes() != start.tobytes()


def test_a_checkpoint_is_of_one_moment_though_pushes_go_on(tmp_path, monkeypatch):
    """The push comes while the file is written, and does not wait for it."""
    shard = Shard("sgd", learning_rate=1.0, momentum=0.5)
    shard.init("w", np.zeros(3))
    shard.push(0, 1, "w", np.ones(3))
    plain = array_file.save

    def slow(path, about, arrays):
        shard.push(0, 2, "w", np.ones(3))
        plain(path, about, arrays)

    monkeypatch.setattr(array_file, "save", slow)
    shard.checkpoint(tmp_path / "file")
    other, _ = Shard.restore(tmp_path / "file")
    assert (other.last(0), other.pull("w")[0], other.pull("w")[1].tolist()) == (1, 1, [-1] * 3)
    assert shard.pull("w")[1].tolist() == [-2.5] * 3
