"""The perceptron that learns digits has the same losses in every way of training."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from helpers.data.digits import rows

import cudasync as cs
from cudasync.experiments.training import by_data, by_stages, digits, model, outcome
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.ways import WAYS

SETTINGS = Settings(hidden=12, steps=4, batch=32, micro_batches=3)
HERE = [way for way in WAYS if way.train is not None]


@pytest.fixture(scope="module")
def found():
    data = rows()
    ways = [
        outcome.run(way.name, way.train, data, SETTINGS, is_asynchronous=bool(way.servers))
        for way in HERE
    ]
    reference = outcome.reference(data, SETTINGS)
    return outcome.Outcome(settings=SETTINGS, ways=ways, reference=reference, left_out={})


def test_every_way_has_the_losses_of_one_device_and_of_numpy(found):
    assert found.holds
    assert [each.name for each in found.ways] == [way.name for way in HERE]
    assert found.difference_of_numpy < outcome.TOLERANCE
    for way in found.ways:
        assert len(way.losses) == SETTINGS.steps
        assert way.losses[-1] < way.losses[0]


def test_it_learns():
    data = rows()
    losses, weights = model.in_numpy(data, Settings(hidden=12, steps=60, batch=32))
    assert losses[-1] < 0.5 * losses[0]
    assert model.accuracy(data, weights) > 0.8


def test_both_schedules_give_the_same_bits():
    comm = cs.distributed.init("local", devices=[0, 1 % cs.device_count()])
    one, other = (
        by_stages.train(rows(), SETTINGS, comm, schedule)[0].numpy()
        for schedule in ("1f1b", "gpipe")
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("devices", [["cpu"], [0, 0, 0, 0], ["cpu", 0]])
def test_ranks_may_be_any_devices(devices, found):
    comm = cs.distributed.init("local", devices=devices)
    losses, _ = by_data.train(rows(), SETTINGS, comm)
    np.testing.assert_allclose(losses.numpy(), found.ways[0].losses, rtol=0, atol=outcome.TOLERANCE)


def _the_mean_is_taken_twice(planted):
    make = cs.parallel.DataParallel
    planted.setattr(
        by_data.cs.parallel,
        "DataParallel",
        lambda *given, **options: make(*given, **{**options, "op": "mean"}),
    )


def _a_rank_has_rows_of_another(planted):
    batches = digits.Data.batches

    def doubled(self, count, steps):
        for x, y in batches(self, count, steps):
            yield np.concatenate([x[::2], x[::2]]), np.concatenate([y[::2], y[::2]])

    planted.setattr(digits.Data, "batches", doubled)


@pytest.mark.parametrize(
    "plant",
    [_the_mean_is_taken_twice, _a_rank_has_rows_of_another],
    ids=lambda each: each.__name__.strip("_"),
)
def test_a_wrong_way_is_found(plant, monkeypatch, found):
    plant(monkeypatch)
    wrong = outcome.run("wrong", HERE[1].train, rows(), SETTINGS)
    assert not found.is_right(wrong)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(digits.DataMissing, match="pip install scikit-learn"):
        digits.load()


@pytest.fixture
def real():
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("needs scikit-learn")
    return digits.load()


def test_the_digits_are_all_there_in_numbers_between_0_and_1(real, tmp_path):
    assert len(real.x) + len(real.test_x) == 1797
    assert real.x.min() == 0
    assert real.x.max() == 1
    assert (real.y.sum(axis=1) == 1).all()
    real.save(tmp_path / "digits.npz")
    np.testing.assert_array_equal(digits.read(tmp_path / "digits.npz").test_x, real.test_x)
