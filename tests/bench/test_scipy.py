"""The script that calls SciPy and scikit-learn: its verdicts, without these libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.repository.checkout import ROOT

from bench.suites import scipy_suite

ROW = np.arange(1.0, 5.0)
CASES = {
    "right": (lambda x: x * 2, (ROW,)),
    "of python": (lambda x: float(x[0]), (ROW,)),
    "wrong": (lambda x: x + isinstance(x, np.ndarray) * 1.0, (ROW,)),
    "of another shape": (lambda x: x if isinstance(x, np.ndarray) else x[:2], (ROW,)),
    "refused": (lambda x: x * 1j, (ROW,)),
}


@pytest.mark.parametrize("device", [0, "cpu"])
def test_only_numpys_answer_passes(device):
    found = {each["test"]: each for each in scipy_suite.asked(CASES, device)}
    assert [name for name, each in found.items() if each["outcome"] == "passed"] == [
        "right",
        "of python",
    ]
    assert found["wrong"]["reason"].startswith("another answer: 1.0 apart")
    assert found["of another shape"]["reason"].startswith("another answer: of shape (2,)")
    assert found["refused"]["reason"].startswith("NotImplementedError: complex numbers")


@pytest.mark.parametrize(("reason", "status"), [("another answer: 1", 1), ("TypeError: no", 0)])
def test_another_answer_is_what_fails(reason, status, tmp_path):
    file = tmp_path / "kept.json"
    outcome = {"test": "stats.skew", "outcome": "failed", "reason": reason}
    file.write_text(json.dumps({"namespaces": {"device 0": [outcome]}}))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "suites" / "scipy_suite.py"), "--table", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == status, ended.stderr
    assert "1 tests, 0 passed" in ended.stdout
    assert "stats.skew" in ended.stdout
    # NumPy was not called.
    assert "NumPy too" not in ended.stdout
