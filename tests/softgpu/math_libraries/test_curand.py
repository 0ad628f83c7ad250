"""The stand-in for cuRAND: the right distributions; equal seeds and offsets give equal numbers."""

from __future__ import annotations

from helpers.driver.math_programs import run_mathematics

START = """
lib = library("curand", "libcurand.so.10")
def generator(seed=3):
    made = ctypes.c_void_p()
    good(lib.curandCreateGenerator(ctypes.byref(made), 100))
    good(call(lib.curandSetPseudoRandomGeneratorSeed, made, seed))
    return made
def drawn(g, name, count, dtype, *more):
    target, back = there(np.zeros(count, dtype))
    code_ = call(getattr(lib, f"curandGenerate{name}"), g, target, count, *more)
    assert code_ == 0, code_
    return back()
"""


def test_the_same_seed_and_place_give_the_same_numbers_and_others_others():
    program = """
    one, two = generator(), generator()
    first = drawn(one, "", 10, np.uint32)
    assert (drawn(two, "", 10, np.uint32) == first).all()
    second = drawn(one, "", 5, np.uint32)
    assert (second != first[:5]).any()
    good(call(lib.curandSetGeneratorOffset, two, 3))
    assert (drawn(two, "", 12, np.uint32) == np.concatenate([first[3:], second])).all()
    assert (drawn(generator(4), "", 10, np.uint32) != first).any()
    good(call(lib.curandSetPseudoRandomGeneratorSeed, one, 3))
    assert (drawn(one, "", 10, np.uint32) == first).all()
    """
    assert run_mathematics(START, program) == ""


def test_numbers_have_the_distribution_that_was_asked_for():
    program = """
    g, n = generator(11), 20000
    for suffix, dtype, c in (("", np.float32, ctypes.c_float), ("Double", np.float64,
              ctypes.c_double)):
        x = drawn(g, f"Uniform{suffix}", n, dtype)
        assert 0 < x.min() and x.max() <= 1
        # Within five standard deviations of the mean and of the variance.
        assert abs(x.mean() - 0.5) < 5 / np.sqrt(12 * n)
        assert abs(np.histogram(x, 10, (0, 1))[0] - n / 10).max() < 5 * np.sqrt(n / 10)
        z = drawn(g, f"Normal{suffix}", n, dtype, c(2), c(3))
        assert abs(z.mean() - 2) < 15 / np.sqrt(n)
        assert abs(z.std() - 3) < 15 / np.sqrt(n)
        assert abs(((z - 2) / 3 < 1).mean() - 0.8413) < 0.02
        y = np.log(drawn(g, f"LogNormal{suffix}", n, dtype, c(1), c(0.5)).astype(float))
        assert abs(y.mean() - 1) < 2.5 / np.sqrt(n)
        assert abs(y.std() - 0.5) < 2.5 / np.sqrt(n)
    k = drawn(g, "Poisson", n, np.uint32, 4.0)
    assert abs(k.mean() - 4) < 10 / np.sqrt(n)
    assert abs(k.var() - 4) < 0.4
    """
    assert run_mathematics(START, program) == ""


def test_what_is_wrong_is_a_code_and_a_sentence():
    program = """
    g = generator()
    target, _ = there(np.zeros(4))
    print(call(lib.curandGenerateUniformDouble, g, target, 5), flush=True)
    two = ctypes.c_float(0), ctypes.c_float(1)
    print(call(lib.curandGenerateNormal, g, target, 3, *two), flush=True)
    print(call(lib.curandGeneratePoisson, g, target, 1, -1.0), flush=True)
    print(call(lib.curandGenerateLongLong, g, target, 4), flush=True)
    print(lib.curandCreateGenerator(ctypes.byref(ctypes.c_void_p()), 200), flush=True)
    good(lib.curandSetStream(g, ctypes.c_void_p(int(stream))))
    ok(d.cuStreamBeginCapture(stream, 0))
    print(call(lib.curandGenerate, g, target, 1), flush=True)
    """
    printed = run_mathematics(START, program)
    codes = [line for line in printed.splitlines() if line.isdigit()]
    assert codes == ["104", "105", "104", "103", "103", "201"], printed
    assert "curandGenerateNormal: the count of normal numbers must be even, not 3" in printed
    assert "generators of type 200 are not modelled" in printed
    assert "cannot be captured" in printed
