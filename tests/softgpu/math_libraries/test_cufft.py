"""The stand-in for cuFFT: transforms equal NumPy's, in every layout that a plan can describe."""

from __future__ import annotations

from helpers.driver.math_programs import run_mathematics

START = """
lib = library("cufft", "libcufft.so.12")
C2C, R2C, C2R, Z2Z, D2Z, Z2D = 0x29, 0x2A, 0x2C, 0x69, 0x6A, 0x6C
def plan():
    made = ctypes.c_int()
    good(lib.cufftCreate(ctypes.byref(made)))
    return made.value
def ints(values):
    return np.array(values, np.int32).ctypes.data_as(ctypes.c_void_p)
size = ctypes.c_size_t(7)
def many(lengths, kind, batch, of_input=None, of_output=None):
    p = plan()
    one, two = of_input or (None, 0, 0), of_output or (None, 0, 0)
    one, two = ((ints(e) if e else None, s, dist) for e, s, dist in (one, two))
    good(lib.cufftMakePlanMany(p, len(lengths), ints(lengths), *one, *two, kind, batch,
                               ctypes.byref(size)))
    assert size.value == 0
    return p
def place(array):
    return there(array.ravel())
"""


def test_complex_and_real_transforms_of_one_to_three_dimensions():
    program = """
    for lengths in ((8,), (7,), (4, 6), (3, 5), (2, 3, 4)):
        axes = tuple(range(1, 1 + len(lengths)))
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        for kind, dtype in ((C2C, np.complex64), (Z2Z, np.complex128)):
            x = np.ascontiguousarray(numbers((3, *lengths), dtype))
            p = many(lengths, kind, 3)
            run = lib.cufftExecC2C if kind == C2C else lib.cufftExecZ2Z
            for direction in (-1, 1):
                (source, _), (target, back) = place(x), place(np.zeros_like(x))
                good(call(run, ctypes.c_int(p), source, target, ctypes.c_int(direction)))
                found = back().reshape(x.shape)
                transform = np.fft.fftn if direction < 0 else np.fft.ifftn
                norm = "backward" if direction < 0 else "forward"
                agree(found, transform(x, axes=axes, norm=norm).astype(dtype), 99)
        for kinds, real, dtype in (((R2C, C2R), np.float32, np.complex64),
                                   ((D2Z, Z2D), np.float64, np.complex128)):
            x = np.ascontiguousarray(numbers((3, *lengths), real))
            names = ("R2C", "C2R") if real == np.float32 else ("D2Z", "Z2D")
            (source, _), (target, back) = place(x), place(np.zeros((3, *half), dtype))
            good(call(getattr(lib, f"cufftExec{names[0]}"), ctypes.c_int(many(lengths, kinds[0],
                      3)),
                      source, target))
            agree(back().reshape(3, *half), np.fft.rfftn(x, axes=axes).astype(dtype), 99)
            again, fetch = place(np.zeros_like(x))
            good(call(getattr(lib, f"cufftExec{names[1]}"), ctypes.c_int(many(lengths, kinds[1],
                      3)),
                      target, again))
            agree(fetch().reshape(x.shape), x * np.prod(lengths).astype(real), 99)
    p = plan()
    good(lib.cufftMakePlan1d(p, 16, Z2Z, 2, ctypes.byref(size)))
    x = np.ascontiguousarray(numbers((2, 16), np.complex128))
    source, back = place(x)
    good(lib.cufftSetStream(p, ctypes.c_void_p(int(stream))))
    good(call(lib.cufftExecZ2Z, ctypes.c_int(p), source, source, ctypes.c_int(-1)))
    ok(d.cuStreamSynchronize(stream))
    agree(back().reshape(2, 16), np.fft.fft(x), 99)
    """
    assert run_mathematics(START, program) == ""


def test_elements_lie_as_the_plan_says():
    program = """
    # Rows of 5 in rows of 7 elements, each second one, boxes 60 apart.
    x = np.ascontiguousarray(numbers((120,), np.complex128))
    y = np.full(64, 9, np.complex128)
    p = many((3, 5), Z2Z, 2, ((4, 7), 2, 60), ((3, 5), 1, 20))
    (source, _), (target, back) = place(x), place(y)
    good(call(lib.cufftExecZ2Z, ctypes.c_int(p), source, target, ctypes.c_int(-1)))
    found = back()
    for box in range(2):
        grid = np.array([[x[60 * box + 2 * (7 * i + j)] for j in range(5)] for i in range(3)])
        agree(found[20 * box : 20 * box + 15].reshape(3, 5), np.fft.fft2(grid), 99)
    assert (found[15:20] == 9).all()
    # A real array in its own place has room for the complex rows.
    rows = np.zeros((3, 8))
    rows[:, :6] = rng.uniform(-1, 1, (3, 6))
    source, back = place(rows)
    good(call(lib.cufftExecD2Z, ctypes.c_int(many((3, 6), D2Z, 1)), source, source))
    agree(back().view(np.complex128).reshape(3, 4), np.fft.rfft2(rows[:, :6]), 99)
    """
    assert run_mathematics(START, program) == ""


def test_what_is_wrong_is_a_code_and_a_sentence():
    program = """
    x = np.zeros(8, np.complex128)
    source, _ = place(x)
    p = many((9,), Z2Z, 1)
    print(call(lib.cufftExecZ2Z, ctypes.c_int(p), source, source, ctypes.c_int(-1)), flush=True)
    print(call(lib.cufftExecC2C, ctypes.c_int(p), source, source, ctypes.c_int(-1)), flush=True)
    print(call(lib.cufftExecZ2Z, ctypes.c_int(99), source, source, ctypes.c_int(-1)), flush=True)
    print(lib.cufftMakePlan1d(plan(), 0, Z2Z, 1, ctypes.byref(size)), flush=True)
    print(lib.cufftXtSetGPUs(p, 2, None), flush=True)
    """
    printed = run_mathematics(START, program)
    codes = [line for line in printed.splitlines() if line.isdigit()]
    assert codes == ["4", "3", "1", "8", "16"], printed
    assert "cufftExecZ2Z: 144 bytes at" in printed
    assert "there is no plan 99" in printed
    assert "cufftXtSetGPUs: the software GPU does not model it" in printed
