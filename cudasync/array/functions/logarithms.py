"""Floor 4, functions. CUDA C of functions by logarithms: powers and inverse hyperbolic functions.

float32 is computed in float64, so that only the final rounding counts. The logarithm to base 2 has
a relative error of 4e-12, by a polynomial in the square of (m - 1) / (m + 1). A power of 2 has
2e-9, by a polynomial of degree 6. Both are least-squares fits, and together a fortieth of a unit in
the last place. CUDA's own functions for float64 are correct to the last bits, but take three to
eight times as long without a GPU; those for float32 are up to 4 ulp off.

Special cases follow C. For `pow`: 1 to any power and anything to the power 0 are 1; a negative base
has a power only for whole exponents, and the sign of the power for odd ones. Near 0, where a
logarithm of nearly 1 has few digits, an inverse function uses its series.
"""

from __future__ import annotations

LOGARITHM = """\
__device__ double logarithm_of(double positive) {
    const long long bits = __double_as_longlong(positive);
    const int above = (int)((bits - 0x3fe6a09e667f3bcdLL) >> 52);
    const double part = __longlong_as_double(bits - ((long long)above << 52));
    const double ratio = (part - 1.0) / (part + 1.0), square = ratio * ratio;
    double sum = fma(0.3407190418168899, square, 0.4116733852236294);
    sum = fma(fma(sum, square, 0.577083572440978), square, 0.9617966734170486);
    return fma(fma(sum, square, 2.885390081790015), ratio, (double)above);
}"""

POWER = """\
__device__ float power_of_floats(float base, float exponent) {
    const float size = fabsf(base), infinity = __int_as_float(0x7f800000);
    const double wanted = (double)exponent * logarithm_of((double)size);
    const double low = wanted < -160.0 ? -160.0 : wanted, power = low > 130.0 ? 130.0 : low;
    // With its last place at 1: what is left of it is a whole number.
    const double shifted = power + 6755399441055744.0, whole = shifted - 6755399441055744.0;
    const double rest = power - whole;
    double sum = fma(0.0001537070481683569, rest, 0.0013399848290742678);
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

AREA_SINE = """\
__device__ float area_sine(float x) {
    const double size = fabs((double)x), square = size * size;
    const float found = (float)(0.6931471805599453 * logarithm_of(size + sqrt(square + 1.0)));
    const bool is_itself = (x != x) | (size > 1e39);
    const float near = (float)(size * fma(square, -1.0 / 6.0, 1.0));
    return is_itself ? x : copysignf(size < 1e-3 ? near : found, x);
}
__device__ double area_sine(double x) { return asinh(x); }"""

AREA_COSINE = """\
__device__ float area_cosine(float x) {
    const double wide = x, root = sqrt((wide - 1.0) * (wide + 1.0));
    const float found = (float)(0.6931471805599453 * logarithm_of(wide + root));
    return x >= 1.0f ? (wide > 1e39 ? x : found) : __int_as_float(0x7fc00000);
}
__device__ double area_cosine(double x) { return acosh(x); }"""

AREA_TANGENT = """\
__device__ float area_tangent(float x) {
    const double size = fabs((double)x), square = size * size;
    const float found = (float)(0.34657359027997264 * logarithm_of((1.0 + size) / (1.0 - size)));
    const float near = (float)(size * fma(square, 1.0 / 3.0, 1.0));
    const float inside = copysignf(size < 1e-3 ? near : found, x);
    const float end = copysignf(__int_as_float(0x7f800000), x);
    return size < 1.0 ? inside : size == 1.0 ? end : __int_as_float(0x7fc00000);
}
__device__ double area_tangent(double x) { return atanh(x); }"""
