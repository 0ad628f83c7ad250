"""A profile shows the stages of a pipeline by their names."""

from __future__ import annotations

import numpy as np

import cudasync as cs
from cudasync import data


def test_a_profile_has_the_stages_of_a_pipeline_by_name():
    samples = np.arange(40 * 64, dtype=np.float32).reshape(40, 64)
    with cs.profile() as profile:
        pipeline = data.source(samples).map(np.sqrt, workers=2).map(np.square).batch(8)
        batches = list(pipeline.prefetch(2, device=0))
        cs.waitall()
    assert len(batches) == 5
    counts = {row.name: row.count for row in profile.rows}
    assert {name: counts[name] for name in ("prefetch gather", "prefetch copy")} == {
        "prefetch gather": 5,
        "prefetch copy": 5,
    }
    assert counts["prefetch"] >= 6  # One pull for each batch, and the pulls that find the end.
    assert counts["map"] >= 1
    assert counts["map 2"] >= 1
    assert "prefetch copy" in str(profile)
