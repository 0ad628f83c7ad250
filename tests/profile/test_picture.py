"""The picture has a bar for each op. Without matplotlib, one line says what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import cudasync as cs


@pytest.fixture(scope="module")
def profile():
    with cs.profile() as profile, cs.Engine(workers=1) as engine, cs.annotate("part"):
        (cs.array(np.ones(1000, np.float32), device=0) + 1).numpy()
        # Matplotlib would take this name for mathematics, and fail to parse it.
        engine.push(lambda: None, name="$x_$ $")
    return profile


def test_each_op_with_times_has_a_bar_in_the_panel_of_its_clock(profile, tmp_path, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))
    )
    profile.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    assert [each.name for each in profile.annotations] == ["part"]
    timed = [each for each in (*profile.records, *profile.annotations) if each.has_times]
    for panel, clock in zip(figure.axes, sorted({each.clock for each in timed}), strict=True):
        bars = [each for each in panel.collections if isinstance(each, PolyCollection)]
        mine = [each for each in timed if each.clock == clock]
        assert sum(len(each.get_paths()) for each in bars) == len(mine)
        rows = [each.get_text() for each in panel.get_yticklabels()]
        assert rows == sorted({each.place for each in mine})
        assert panel.get_title(loc="left").startswith(clock)


def test_an_empty_profile_is_a_picture_too(tmp_path):
    with cs.profile() as profile:
        pass
    profile.plot(tmp_path / "picture.svg")
    assert "</svg>" in (tmp_path / "picture.svg").read_text()


def test_without_matplotlib_it_is_said_what_to_install(profile, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"cudasync\[demo\]"):
        profile.plot(tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()
