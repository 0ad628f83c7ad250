"""Floor 4, functions. CUDA C of a power of float32: 2 to the exponent's multiple of a logarithm.

In float64, so that only what is rounded at the end counts: the logarithm is 4e-12 off by a
polynomial in the square of (m - 1) / (m + 1), the power 2e-9 by one of degree 6, both of least
squares. A fortieth of a unit in the last place. CUDA's own for float64 is correct to the last bits
of those, in eight times as long without a GPU, and for float32 it is up to 4 ulp off.

What is special is what C says of `pow`: 1 to anything and anything to 0 are 1, a negative base has
a power for whole exponents only, and the sign of an odd one.
"""

from __future__ import annotations

POWER = """\
__device__ float power_of_floats(float base, float exponent) {
    const float size = fabsf(base), infinity = __int_as_float(0x7f800000);
    const long long bits = __double_as_longlong((double)size);
    const int above = (int)((bits - 0x3fe6a09e667f3bcdLL) >> 52);
    const double part = __longlong_as_double(bits - ((long long)above << 52));
    const double ratio = (part - 1.0) / (part + 1.0), square = ratio * ratio;
    double sum = fma(0.3407190418168899, square, 0.4116733852236294);
    sum = fma(fma(sum, square, 0.577083572440978), square, 0.9617966734170486);
    const double logarithm = fma(fma(sum, square, 2.885390081790015), ratio, (double)above);
    const double wanted = (double)exponent * logarithm;
    const double low = wanted < -160.0 ? -160.0 : wanted, power = low > 130.0 ? 130.0 : low;
    // With its last place at 1: what is left of it is a whole number.
    const double shifted = power + 6755399441055744.0, whole = shifted - 6755399441055744.0;
    const double rest = power - whole;
    sum = fma(0.0001537070481683569, rest, 0.0013399848290742678);
    sum = fma(fma(sum, rest, 0.009618373251351453), rest, 0.055503290351534944);
    sum = fma(fma(sum, rest, 0.24022648462281218), rest, 0.6931472055771001);
    const long long scale = (__double_as_longlong(shifted) + 1023) << 52;
    float found = (float)(fma(sum, rest, 1.0) * __longlong_as_double(scale));
    const float half = 0.5f * exponent;
    const bool is_whole = exponent == floorf(exponent), is_odd = is_whole & (half != floorf(half));
    const bool is_end = (size == 0.0f) | (size == infinity);
    found = is_end ? ((size == 0.0f) == (exponent > 0.0f) ? 0.0f : infinity) : found;
    found = is_odd ? copysignf(found, base) : found;
    found = (base < 0.0f) & !is_end & !is_whole ? __int_as_float(0x7fc00000) : found;
    found = (base != base) | (exponent != exponent) ? base + exponent : found;
    const bool is_one = (base == 1.0f) | (exponent == 0.0f);
    return is_one | ((size == 1.0f) & (fabsf(exponent) == infinity)) ? 1.0f : found;
}
__device__ double power_of_floats(double base, double exponent) { return pow(base, exponent); }"""
