"""Signals, splines and trees of cupyx.scipy; what needs cuSPARSE is refused by name."""

from __future__ import annotations

import cupy as cp
import cupyx.scipy.signal as signal
import cupyx.scipy.sparse as sparse
import numpy as np
from cupyx.scipy.interpolate import BSpline, RegularGridInterpolator

window = cp.asnumpy(signal.windows.hann(9))
assert np.allclose(window, 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(9) / 8))
assert np.allclose(cp.asnumpy(signal.convolve(cp.ones(3), cp.ones(3))), [1, 2, 3, 2, 1])
smoothed = cp.asnumpy(signal.lfilter(cp.array([0.5]), cp.array([1, -0.5]), cp.ones(4)))
assert smoothed.tolist() == [0.5, 0.75, 0.875, 0.9375]
peaks, _ = signal.find_peaks(cp.array([0.0, 1, 0, 2, 0]))
assert cp.asnumpy(peaks).tolist() == [1, 3]

line = BSpline(cp.array([0.0, 0, 1, 2, 2]), cp.array([1.0, 3, 5]), 1)
assert np.allclose(cp.asnumpy(line(cp.array([0.5, 1.5]))), [2, 4])
grid = RegularGridInterpolator((cp.arange(3.0), cp.arange(3.0)), cp.arange(9.0).reshape(3, 3))
assert np.allclose(cp.asnumpy(grid(cp.array([[0.5, 0.5], [1.5, 2.0]]))), [2, 6.5])

# A real GPU does not refuse it.
refused = ""
try:
    sparse.csr_matrix(cp.eye(3, dtype=np.float32))
except NotImplementedError as error:
    refused = str(error)
assert not refused or refused.startswith("cuSPARSE (")

print("signals: windows, filters, peaks, splines, and a refusal")
