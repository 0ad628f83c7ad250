"""The functions of SciPy and scikit-learn that `scipy_suite.py` calls, with their inputs.

Each function takes array API inputs, and is called with NumPy's arrays and with ours. This file is
imported only if both libraries are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import differentiate, integrate, ndimage, signal, special, stats
from scipy.cluster import hierarchy, vq
from scipy.spatial.transform import Rotation
from sklearn import metrics, preprocessing, set_config
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise

if TYPE_CHECKING:
    from collections.abc import Callable

set_config(array_api_dispatch=True)

_numbers = np.random.default_rng(0)
TABLE, OTHER = _numbers.random((40, 3)), _numbers.random((40, 3))
ROW, SECOND = TABLE[:, 0].copy(), OTHER[:, 0].copy()
TRUE, GUESSED = _numbers.integers(0, 2, 40), _numbers.integers(0, 2, 40)

# A function, and its array arguments.
Case = tuple["Callable[..., Any]", tuple[np.ndarray, ...]]

CASES: dict[str, Case] = {}


def case(name: str, function: Callable[..., Any], *arrays: np.ndarray) -> None:
    assert name not in CASES
    CASES[name] = (function, arrays)


for _name in ["erf", "gammaln", "expit", "logit", "ndtr", "i0", "entr"]:
    case(f"special.{_name}", getattr(special, _name), ROW)
for _name in ["xlogy", "rel_entr"]:
    case(f"special.{_name}", getattr(special, _name), ROW, SECOND)
case("special.betainc", lambda a, b: special.betainc(a, b, a), ROW, SECOND)
for _name in ["logsumexp", "softmax", "log_softmax"]:
    _function = getattr(special, _name)
    case(f"special.{_name}", lambda a, f=_function: f(a, axis=1), TABLE)

for _name in ["zscore", "skew", "kurtosis", "gmean", "hmean", "variation", "sem", "entropy"]:
    case(f"stats.{_name}", getattr(stats, _name), TABLE)
for _name in ["tmean", "rankdata", "iqr", "circmean", "gstd"]:
    case(f"stats.{_name}", getattr(stats, _name), ROW)
case("stats.moment", lambda a: stats.moment(a, 3), TABLE)
case("stats.pmean", lambda a: stats.pmean(a, 2), TABLE)
case("stats.describe", lambda a: stats.describe(a).variance, TABLE)
case("stats.quantile", lambda a: stats.quantile(a, 0.3), ROW)
case("stats.trim_mean", lambda a: stats.trim_mean(a, 0.1), ROW)
case("stats.directional_stats", lambda a: stats.directional_stats(a).mean_direction, TABLE)
case("stats.ttest_1samp", lambda a: stats.ttest_1samp(a, 0.5).pvalue, ROW)
for _name in ["chisquare", "jarque_bera", "skewtest"]:
    _function = getattr(stats, _name)
    case(f"stats.{_name}", lambda a, f=_function: f(a).statistic, ROW)
for _name in ["ttest_ind", "pearsonr", "bartlett", "mannwhitneyu"]:
    _function = getattr(stats, _name)
    case(f"stats.{_name}", lambda a, b, f=_function: f(a, b).statistic, ROW, SECOND)

case("cluster.whiten", vq.whiten, TABLE)
case("cluster.vq", lambda a, b: vq.vq(a, b)[1], TABLE, OTHER[:5].copy())
case("cluster.kmeans", lambda a, b: vq.kmeans(a, b)[0], TABLE, TABLE[:3].copy())
case("cluster.linkage", hierarchy.linkage, TABLE)
case("signal.detrend", signal.detrend, ROW)
case("signal.convolve", lambda a, b: signal.convolve(a, b, method="direct"), ROW, SECOND)
case("signal.fftconvolve", signal.fftconvolve, ROW, SECOND)
case("signal.lfilter", lambda a, b: signal.lfilter(a[:3], b[:3], a), ROW, SECOND)
case("signal.savgol_filter", lambda a: signal.savgol_filter(a, 5, 2), ROW)
case("ndimage.gaussian_filter", lambda a: ndimage.gaussian_filter(a, 1.0), TABLE)
case("integrate.trapezoid", integrate.trapezoid, ROW)
case("integrate.cumulative_trapezoid", integrate.cumulative_trapezoid, ROW)
case("differentiate.derivative", lambda a: differentiate.derivative(lambda t: t * t, a).df, ROW)
case("spatial.Rotation", lambda a: Rotation.from_rotvec(a).as_matrix(), TABLE)

for _name in [
    "accuracy_score",
    "zero_one_loss",
    "f1_score",
    "precision_score",
    "recall_score",
    "jaccard_score",
    "hamming_loss",
    "confusion_matrix",
]:
    case(f"metrics.{_name}", getattr(metrics, _name), TRUE, GUESSED)
for _name in ["r2_score", "mean_squared_error", "mean_absolute_error", "max_error"]:
    case(f"metrics.{_name}", getattr(metrics, _name), ROW, SECOND)
for _name in ["log_loss", "brier_score_loss", "roc_auc_score"]:
    case(f"metrics.{_name}", getattr(metrics, _name), TRUE, ROW)
for _name in ["euclidean_distances", "cosine_similarity", "rbf_kernel", "polynomial_kernel"]:
    case(f"metrics.{_name}", getattr(pairwise, _name), TABLE, OTHER)

for _name in [
    "StandardScaler",
    "MinMaxScaler",
    "MaxAbsScaler",
    "Normalizer",
    "Binarizer",
    "PolynomialFeatures",
]:
    _kind = getattr(preprocessing, _name)
    case(f"preprocessing.{_name}", lambda a, k=_kind: k().fit_transform(a), TABLE)
case("preprocessing.LabelEncoder", lambda a: preprocessing.LabelEncoder().fit_transform(a), TRUE)
case(
    "LinearDiscriminantAnalysis",
    lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict(a),
    TABLE,
    TRUE,
)
case("PCA", lambda a: abs(PCA(2, svd_solver="full").fit_transform(a)), TABLE)
case("Ridge", lambda a, b: Ridge(solver="svd").fit(a, b).coef_, TABLE, ROW)
