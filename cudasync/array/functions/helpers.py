"""Floor 4, functions. CUDA C that texts call: functions that C lacks, or defines unlike NumPy."""

from __future__ import annotations

from cudasync.array.functions import logarithms, philox, quantile

# By name; `_CALLS` has the helpers that a helper calls. A kernel gets the helpers that it uses.
HELPERS: dict[str, str] = {
    # float16 as bits, and as floats.
    "from_half": """\
__device__ float from_half(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}""",
    "to_half": """\
__device__ unsigned short to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ unsigned short to_half(double value) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return bits;
}""",
    "next_half": """\
__device__ float next_half(float from, float to) {
    if (isnan(from) || isnan(to)) return from + to;
    if (from == to) return from;
    unsigned short bits = to_half(from);
    if (from == 0) return from_half(signbit(to) ? 0x8001 : 0x0001);
    return from_half((from < to) == (from > 0) ? bits + 1 : bits - 1);
}""",
    # A divisor of 0 gives 0; the smallest integer by -1 wraps.
    "divide_signed": """\
template <class T> __device__ T divide_signed(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return (T)(0 - (unsigned long long)a);
    T quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}""",
    "remainder_signed": """\
template <class T> __device__ T remainder_signed(T a, T b) {
    if (b == 0 || b == -1) return 0;
    T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}""",
    # Floor division and remainder that agree, as Python's divmod of floats.
    "divide_floor": """\
template <class T> __device__ T divide_floor(T a, T b) {
    if (b == 0) return a / b;
    T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign((T)0, a / b);
    T whole = floor(quotient);
    return quotient - whole > (T)0.5 ? whole + 1 : whole;
}""",
    "remainder_floor": """\
template <class T> __device__ T remainder_floor(T a, T b) {
    T rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign((T)0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    # By squaring, with wrap. An exponent below 0 gives 1 / base truncated to an integer.
    "power": """\
template <class T> __device__ T power(T base, T exponent) {
    if (exponent < 0) {
        if (base == 1) return 1;
        return base == (T)-1 ? ((exponent & 1) ? (T)-1 : (T)1) : (T)0;
    }
    unsigned long long result = 1, factor = base;
    for (unsigned long long rest = exponent; rest; rest >>= 1) {
        if (rest & 1) result *= factor;
        factor *= factor;
    }
    return (T)result;
}""",
    # CUDA's own function rounds a product down, which takes a processor several instructions. Here
    # the multiple of log 2 is found by adding a number whose last place is 1, and subtracted in two
    # parts (Cody and Waite). A least-squares polynomial is 4e-9 off. 2 to the multiple comes in two
    # factors, so that subnormal results are rounded once. NaN passes through.
    "exponential": """\
__device__ float exponential(float x) {
    const float low = x < -104.0f ? -104.0f : x, at = low > 89.0f ? 89.0f : low;
    const float shifted = fmaf(at, 1.44269504f, 12582912.0f), whole = shifted - 12582912.0f;
    const float rest = fmaf(whole, -1.42860677e-6f, fmaf(whole, -0.693145752f, at));
    float sum = fmaf(0.0013751389f, rest, 0.008368921f);
    sum = fmaf(fmaf(sum, rest, 0.041669533f), rest, 0.16666518f);
    sum = fmaf(fmaf(fmaf(sum, rest, 0.49999988f), rest, 1.0f), rest, 1.0f);
    const int power = __float_as_int(shifted) - 0x4b400000, half = power >> 1;
    sum *= __int_as_float((half + 127) << 23);
    return sum * __int_as_float((power - half + 127) << 23);
}
__device__ double exponential(double x) { return exp(x); }""",
    # The same method in float64, with the negative reciprocal in each second quarter. Below 1e5 two
    # parts of pi / 2 are enough; beyond it, and for NaN, CUDA's function is used.
    "tangent_of": """\
__device__ float tangent_of(float x) {
    const double wide = x;
    if (!(fabsf(x) < 1e5f)) return (float)tan(wide);
    const double shifted = fma(wide, 0.6366197723675814, 6755399441055744.0);
    const double turns = shifted - 6755399441055744.0;
    const double near = fma(turns, -1.5707963267948966, wide);
    const double rest = fma(turns, -6.123233995736766e-17, near), square = rest * rest;
    double sum = fma(0.00436593068086359, square, 0.00011144584343392169);
    sum = fma(fma(sum, square, 0.010817885898683528), square, 0.021289268671358625);
    sum = fma(fma(sum, square, 0.05405854797136794), square, 0.13332674692950397);
    const double found = fma(fma(sum, square, 0.33333349498077114) * square, rest, rest);
    return (float)(__double_as_longlong(shifted) & 1 ? -1.0 / found : found);
}
__device__ double tangent_of(double x) { return tan(x); }""",
    "log_add_exp": """\
template <class T> __device__ T log_add_exp(T a, T b) {
    if (a == b) return a + (T)0.693147180559945309417232121458176568;
    T apart = a - b;
    if (apart > 0) return a + log1p(exp(-apart));
    if (apart <= 0) return b + log1p(exp(apart));
    return apart;
}""",
    "logarithm_of": logarithms.LOGARITHM,
    "power_of_floats": logarithms.POWER,
    "area_sine": logarithms.AREA_SINE,
    "area_cosine": logarithms.AREA_COSINE,
    "area_tangent": logarithms.AREA_TANGENT,
    "philox": philox.PHILOX,
    "random_below": philox.BELOW,
    "random_quantile": quantile.QUANTILE,
}
_CALLS = {"next_half": ("from_half", "to_half"), "random_below": ("philox",)}
_CALLS |= dict.fromkeys(
    ("power_of_floats", "area_sine", "area_cosine", "area_tangent"), ("logarithm_of",)
)


def needed_by(text: str) -> list[str]:
    """The helpers that `text` calls, after those that they call themselves."""
    called = [name for name in HELPERS if f"{name}(" in text]
    called += [each for name in called for each in _CALLS.get(name, ())]
    return [source for name, source in HELPERS.items() if name in called]
