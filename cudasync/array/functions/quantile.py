"""Floor 4, functions. The quantile of the normal distribution, the same bits everywhere.

Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37
(1988). It is computed in float64 by + - * / and the square root alone, which IEEE defines,
including the logarithm in its tails. So a device and NumPy agree to the bit, where their libraries
do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Numerator and denominator, the highest power first: in the middle, in the tails, far out.
_MIDDLE = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
        *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
        *(1.3314166789178437745e2, 3.3871328727963666080),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
        *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
        *(4.2313330701600911252e1, 1.0),
    ),
)
_TAIL = (
    (
        *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
        *(1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550),
        *(4.63033784615654529590, 1.42343711074968357734),
    ),
    (
        *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
        *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940),
        *(2.05319162663775882187, 1.0),
    ),
)
_FAR = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3),
        *(2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580),
        *(5.46378491116411436990, 6.65790464350110377720),
    ),
    (
        *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5),
        *(7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1),
        *(5.99832206555887937690e-1, 1.0),
    ),
)
# log(m) = 2 s (1 + s^2/3 + s^4/5 + ...) for s = (m - 1) / (m + 1); here |s| < 0.172.
_SERIES = tuple(1.0 / (2 * i + 1) for i in range(11, -1, -1))
_LOG_2 = 0.6931471805599453
_ROOT_2 = 1.4142135623730951
_SPLIT, _SPLIT_SQUARED = 0.425, 0.180625


def _text(coefficients: tuple[float, ...], of: str) -> str:
    text = repr(coefficients[0])
    for each in coefficients[1:]:
        text = f"({text} * {of} + {each!r})"
    return text


def _ratio(of: tuple[tuple[float, ...], tuple[float, ...]], name: str) -> str:
    return f"{_text(of[0], name)} / {_text(of[1], name)}"


QUANTILE = f"""\
__device__ double random_quantile(double u)
{{
    double q = u - 0.5;
    if (fabs(q) <= {_SPLIT}) {{
        double r = {_SPLIT_SQUARED} - q * q;
        return q * ({_ratio(_MIDDLE, "r")});
    }}
    double tail = q < 0 ? u : 1.0 - u;
    long long bits = __double_as_longlong(tail);
    double exponent = (double)((bits >> 52) - 1023);
    double m = __longlong_as_double((bits & 0xFFFFFFFFFFFFFll) | 0x3FF0000000000000ll);
    if (m > {_ROOT_2}) {{
        m = m * 0.5;
        exponent = exponent + 1.0;
    }}
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double series = {_text(_SERIES, "z")};
    double r = sqrt(-(exponent * {_LOG_2!r} + 2.0 * s * series));
    double x;
    if (r <= 5.0) {{
        r = r - 1.6;
        x = {_ratio(_TAIL, "r")};
    }} else {{
        r = r - 5.0;
        x = {_ratio(_FAR, "r")};
    }}
    return q < 0 ? -x : x;
}}"""


def _value(coefficients: tuple[float, ...], of: Floats) -> Any:
    value: Any = coefficients[0]
    for each in coefficients[1:]:
        value = value * of + each
    return value


def quantile(u: Floats) -> Floats:
    """The x below which a normal number lies with probability `u`, which is within (0, 1)."""
    q = u - 0.5
    r = _SPLIT_SQUARED - q * q
    result: Floats = q * (_value(_MIDDLE[0], r) / _value(_MIDDLE[1], r))
    outside = np.flatnonzero(np.abs(q) > _SPLIT)
    result[outside] = _outside(u[outside], q[outside])
    return result


def _outside(u: Floats, q: Floats) -> Floats:
    tail = np.where(q < 0, u, 1.0 - u)
    bits = tail.view(np.int64)
    exponent = ((bits >> 52) - 1023).astype(np.float64)
    m = ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    is_large = m > _ROOT_2
    m, exponent = np.where(is_large, m * 0.5, m), np.where(is_large, exponent + 1.0, exponent)
    s = (m - 1.0) / (m + 1.0)
    series = _value(_SERIES, s * s)
    r = np.sqrt(-(exponent * _LOG_2 + 2.0 * s * series))
    near, far = r - 1.6, r - 5.0
    x = np.where(
        r <= 5.0,
        _value(_TAIL[0], near) / _value(_TAIL[1], near),
        _value(_FAR[0], far) / _value(_FAR[1], far),
    )
    signed: Floats = np.where(q < 0, -x, x)
    return signed
