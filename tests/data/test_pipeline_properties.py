"""Any pipeline gives what plain Python gives, in each epoch, and the same rest after `restore`."""

from __future__ import annotations

import itertools

import pytest
from helpers.data import input_pipelines as strategies
from helpers.data.input_pipelines import mapped, pipelines, prefetched, read_in_turns, turns
from helpers.data.left_behind import nothing_left_behind
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cudasync.data import cursors, iteration, selection_cursors


@given(make=pipelines(), cut=st.integers(0, 12), epoch=st.integers(0, 2))
def test_any_pipeline_gives_the_model_s_items_and_the_same_rest(make, cut, epoch):
    both = make()
    with both.pipeline as pipeline:
        for at in range(epoch):
            assert list(pipeline) == both.model((at,))
        expected = both.model((epoch,))
        assert list(itertools.islice(pipeline, cut)) == expected[:cut]
        state = pipeline.state()
    if cut <= len(expected):
        with make().pipeline as again:
            again.restore(state)
            assert list(again) == expected[cut:]
            assert list(again) == both.model((epoch + 1,))


@given(make=pipelines(), turns=turns)
def test_iterators_at_once_give_each_the_whole_epoch_and_have_each_a_state(make, turns):
    both = make()
    with both.pipeline:
        for reader in read_in_turns(both, turns):
            with make().pipeline as again:
                again.restore(reader.position())
                if not reader.is_over:
                    assert list(again) == reader.rest()
            reader.read(1_000_000)


# Each example starts processes, so there are few in a plain run.
@settings(max_examples=3, phases=[Phase.generate])
@given(make=pipelines(), workers=st.integers(1, 2), depth=st.integers(1, 3), cut=st.integers(0, 12))
def test_processes_change_nothing(make, workers, depth, cut):
    def made():
        return prefetched(mapped(make(), {"workers": workers, "processes": True}), depth)

    expected = made().model((0,))
    cut = min(cut, len(expected))
    with nothing_left_behind():
        pipeline = made().pipeline
        assert list(itertools.islice(pipeline, cut)) == expected[:cut]
        state = pipeline.state()
        pipeline.restore(state)
        assert list(pipeline) == expected[cut:]


def test_a_verb_that_is_off_by_one_is_found(monkeypatch):
    """The planted bug: a slice of a source without lengths leaves out one item too many."""
    whole = selection_cursors.Sliced.__init__

    def wrong(self, source, start, step, most):
        whole(self, source, start + (start > 0), step, most)

    monkeypatch.setattr(selection_cursors.Sliced, "__init__", wrong)
    search_in_one()


def test_a_sample_that_is_not_copied_is_found(monkeypatch):
    monkeypatch.setattr(cursors, "copied", lambda item: item)
    search_in_one()


def search_in_one():
    @settings(max_examples=300, database=None, phases=[Phase.generate])
    @given(make=pipelines(st.one_of(strategies.STEPS)))
    def search(make):
        both = make()
        with both.pipeline as pipeline:
            assert list(pipeline) == both.model((0,))

    with pytest.raises(AssertionError):
        search()


def ends_the_earlier(run, pipeline, begin):
    WHOLE_RUN(run, pipeline, begin)
    for each in pipeline._runs:
        each()._is_over = True


def begins_the_next_epoch(run, pipeline, begin):
    WHOLE_RUN(run, pipeline, begin._replace(epoch=len(pipeline._runs)))


WHOLE_RUN = iteration.Run.__init__


@pytest.mark.parametrize("bug", [ends_the_earlier, begins_the_next_epoch])
def test_an_iterator_that_changes_another_is_found(bug, monkeypatch):
    monkeypatch.setattr(iteration.Run, "__init__", bug)
    search_in_turns()


def test_a_position_that_iterators_share_is_found(monkeypatch):
    def to_all(run, new):
        run._pipeline.shared = new

    shared = property(lambda run: run._pipeline.shared, to_all)
    monkeypatch.setattr(iteration.Run, "_position", shared, raising=False)
    search_in_turns()


def search_in_turns():
    phases = [Phase.generate]

    @settings(max_examples=300, database=None, phases=phases, report_multiple_bugs=False)
    @given(make=pipelines(strategies.STEPS), turns=turns)
    def search(make, turns):
        both = make()
        with both.pipeline:
            read_in_turns(both, turns)

    with pytest.raises(AssertionError):
        search()
