"""Any pipeline gives what plain Python gives, in each epoch, and the same rest after `restore`."""

from __future__ import annotations

import itertools

import pytest
from helpers.data import input_pipelines as strategies
from helpers.data.input_pipelines import mapped, pipelines, prefetched
from helpers.data.left_behind import nothing_left_behind
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cudasync.data import selection_cursors


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

    @settings(max_examples=300, database=None)
    @given(make=pipelines(st.one_of(strategies.STEPS)))
    def search(make):
        both = make()
        with both.pipeline as pipeline:
            assert list(pipeline) == both.model((0,))

    with pytest.raises(AssertionError):
        search()
