"""The stand-in for cuBLAS: each routine gives NumPy's numbers, and checks its memory."""

from __future__ import annotations

from helpers.driver.math_programs import run_mathematics

START = """
lib = library("cublas", "libcublas.so.13")
handle = ctypes.c_void_p()
good(lib.cublasCreate_v2(ctypes.byref(handle)))
h = handle.value
TYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
OPERATIONS = (lambda a: a, lambda a: a.T, lambda a: a.conj().T)
def scalar(value, dtype):
    return np.array([value], dtype).ctypes.data_as(ctypes.c_void_p)
"""


def test_level_1_is_numpy_s():
    program = """
    for letter, dtype in TYPES.items():
        for n, sx, sy in ((0, 1, 1), (1, 1, 1), (7, 2, 3), (9, -1, 2), (5, -2, -3)):
            x = numbers((max(1, n) * abs(sx),), dtype)
            y = numbers((max(1, n) * abs(sy),), dtype)
            px, _ = there(x)
            py, back = there(y)
            vx, vy = x[:: abs(sx)][:n], y[:: abs(sy)][:n]
            vx, vy = (vx[::-1] if sx < 0 else vx), (vy[::-1] if sy < 0 else vy)
            result = np.zeros(1, dtype)
            suffixes = ("",) if letter in "SD" else ("u", "c")
            for suffix in suffixes:
                name = f"cublas{letter}dot{suffix}_v2"
                good(call(getattr(lib, name), h, n, px, sx, py, sy, result.ctypes.data))
                agree(result[0:1], np.array([(vx.conj() if suffix == "c" else vx) @ vy], dtype), 9)
            good(call(getattr(lib, f"cublas{letter}axpy_v2"), h, n, scalar(3, dtype), px, sx, py,
                      sy))
            vy += dtype(3) * vx
            agree(back(), y)
            if sx > 0:
                real = np.zeros(1, np.finfo(dtype).dtype)
                name = letter if letter in "SD" else {"C": "Sc", "Z": "Dz"}[letter]
                good(call(getattr(lib, f"cublas{name}nrm2_v2"), h, n, px, sx, real.ctypes.data))
                agree(real, np.array([np.linalg.norm(vx)], real.dtype), 9)
                good(call(getattr(lib, f"cublas{name}asum_v2"), h, n, px, sx, real.ctypes.data))
                size = np.abs(vx.real) + np.abs(vx.imag)
                agree(real, np.array([size.sum()], real.dtype), 9)
                index = np.zeros(1, np.int32)
                for which in ("max", "min"):
                    name = f"cublasI{letter.lower()}a{which}_v2"
                    good(call(getattr(lib, name), h, n, px, sx, index.ctypes.data))
                    found = getattr(np, f"arg{which}")(size) + 1 if n else 0
                    assert index[0] == found, (name, n)
    big = np.array([3e30, 4e30], np.float32)
    result = np.zeros(1, np.float32)
    good(call(lib.cublasSnrm2_v2, h, 2, there(big)[0], 1, result.ctypes.data))
    assert abs(result[0] / 5e30 - 1) < 1e-5
    """
    assert run_mathematics(START, program) == ""


def test_products_are_numpy_s():
    program = """
    for letter, dtype in TYPES.items():
        for case in range(30):
            ta, tb = case % 3, case // 3 % 3
            m, n, k = rng.integers(0 if case > 20 else 1, 6, 3).tolist()
            alpha, beta = rng.choice([0, 1, -2, 0.5], 2)
            pads = rng.integers(0, 3, 3).tolist()
            rows = (k if ta else m, n if tb else k, m)
            columns = (m if ta else k, k if tb else n, n)
            leads = [max(1, r) + p for r, p in zip(rows, pads)]
            whole = [numbers((l, c), dtype) for l, c in zip(leads, columns)]
            a, b, c = (w[:r] for w, r in zip(whole, rows))
            if not beta:
                c[...] = np.nan
            (pa, _), (pb, _), (pc, back) = map(there, whole)
            good(call(getattr(lib, f"cublas{letter}gemm_v2"), h, ta, tb, m, n, k,
                      scalar(alpha, dtype), pa, leads[0], pb, leads[1], scalar(beta, dtype), pc,
                                leads[2]))
            product = OPERATIONS[ta](a) @ OPERATIONS[tb](b)
            c[...] = dtype(alpha) * product + (dtype(beta) * c if beta else 0)
            agree(back(), whole[2], 9)
        x, y, a = numbers((3,), dtype), numbers((4,), dtype), numbers((4, 3), dtype)
        for t in range(3):
            u, v = (y, x) if t else (x, y)
            (pu, _), (pv, back), (pa, _) = map(there, (u, v, a))
            good(call(getattr(lib, f"cublas{letter}gemv_v2"), h, t, 4, 3, scalar(2, dtype), pa, 4,
                      pu, 1, scalar(-1, dtype), pv, 1))
            agree(back(), dtype(2) * OPERATIONS[t](a) @ u - v, 9)
        for suffix in ("",) if letter in "SD" else ("u", "c"):
            pa, back = there(a)
            good(call(getattr(lib, f"cublas{letter}ger{suffix}_v2"), h, 4, 3, scalar(2, dtype),
                      there(y)[0], 1, there(x)[0], 1, pa, 4))
            agree(back(), a + dtype(2) * np.outer(y, x.conj() if suffix == "c" else x), 9)
    """
    assert run_mathematics(START, program) == ""


def test_triangles_and_what_extends_level_3_are_numpy_s():
    program = """
    for letter, dtype in TYPES.items():
        for case in range(24):
            side, part, t, unit = case % 2, case // 2 % 2, case // 4 % 3, case // 12
            m, n = 4, 3
            order = n if side else m
            a = numbers((order, order), dtype) + np.asfortranarray(3 * np.eye(order).astype(dtype))
            b = numbers((m, n), dtype)
            pb, back = there(b)
            good(call(getattr(lib, f"cublas{letter}trsm_v2"), h, side, part, t, unit, m, n,
                      scalar(2, dtype), there(a)[0], order, pb, m))
            triangle = np.triu(a) if part else np.tril(a)
            if unit:
                np.fill_diagonal(triangle, 1)
            whole = OPERATIONS[t](triangle)
            found = back()
            agree(found @ whole if side else whole @ found, dtype(2) * b, 50)
        for part in range(2):
            for t in range(2):
                a, c = numbers((3, 3), dtype)[:, :2].copy(order="F"), numbers((3, 3), dtype)
                a = numbers((2, 3) if t else (3, 2), dtype)
                pc, back = there(c)
                good(call(getattr(lib, f"cublas{letter}syrk_v2"), h, part, t, 3, 2, scalar(2,
                          dtype),
                          there(a)[0], len(a), scalar(-1, dtype), pc, 3))
                left = a.T if t else a
                full = dtype(2) * left @ left.T - c
                keep = np.triu_indices(3) if part else np.tril_indices(3)
                c[keep] = full[keep]
                agree(back(), c, 9)
        a, b, c = numbers((4, 3), dtype), numbers((3, 4), dtype), numbers((4, 3), dtype)
        pc, back = there(c)
        good(call(getattr(lib, f"cublas{letter}geam"), h, 0, 2, 4, 3, scalar(2, dtype),
                  there(a)[0], 4,
                  scalar(-1, dtype), there(b)[0], 3, pc, 4))
        agree(back(), dtype(2) * a - b.conj().T, 9)
        for side in range(2):
            x = numbers((3 if side else 4,), dtype)
            good(call(getattr(lib, f"cublas{letter}dgmm"), h, side, 4, 3, there(a)[0], 4,
                      there(x)[0], 1,
                      pc, 4))
            agree(back(), a * x if side else x[:, None] * a, 9)
    for letter, dtype in (("S", np.float32), ("D", np.float64)):
        for part in range(2):
            n, k = 5, 2
            band, x, y = numbers((k + 1, n), dtype), numbers((n,), dtype), numbers((n,), dtype)
            full = np.zeros((n, n), dtype)
            for i in range(n):
                for j in range(max(0, i - k), i + 1):
                    # As BLAS documents: column j holds row i at i - j, or row j at k + j - i.
                    full[i, j] = full[j, i] = band[k + j - i, i] if part else band[i - j, j]
            py, back = there(y)
            good(call(getattr(lib, f"cublas{letter}sbmv_v2"), h, part, n, k, scalar(2, dtype),
                      there(band)[0], k + 1, there(x)[0], 1, scalar(1, dtype), py, 1))
            agree(back(), dtype(2) * full @ x + y, 9)
    """
    assert run_mathematics(START, program) == ""


def test_batches_are_numpy_s():
    program = """
    for letter, dtype in TYPES.items():
        a, b, c = (numbers((2, 3, 5), dtype), numbers((3, 4, 5), dtype), numbers((2, 4, 5), dtype))
        (pa, _), (pb, _), (pc, back) = map(there, (a, b, c))
        item = np.dtype(dtype).itemsize
        expected = np.einsum("ijz,jkz->ikz", a, b) * dtype(2) + c
        tables = [there(np.array([p + i * step * item for i in range(5)], np.uint64))[0]
                  for p, step in ((pa, 6), (pb, 12), (pc, 8))]
        good(call(getattr(lib, f"cublas{letter}gemmBatched"), h, 0, 0, 2, 4, 3, scalar(2, dtype),
                  tables[0], 2, tables[1], 3, scalar(1, dtype), tables[2], 2, 5))
        agree(back(), expected, 9)
        good(call(getattr(lib, f"cublas{letter}gemmStridedBatched"), h, 0, 0, 2, 4, 3, scalar(1,
                  dtype),
                  pa, 2, 6, pb, 3, 12, scalar(0, dtype), pc, 2, 8, 5))
        agree(back(), np.einsum("ijz,jkz->ikz", a, b), 9)
    half, single = np.float16, np.float32
    a, b, c = (numbers(s, half) for s in ((4, 6), (6, 3), (4, 3)))
    pc, back = there(c)
    good(call(lib.cublasGemmEx, h, 0, 0, 4, 3, 6, scalar(1, single), there(a)[0], 2, 4,
              there(b)[0], 2, 6,
              scalar(0, single), pc, 2, 4, 68, -1))
    agree(back(), (a.astype(single) @ b.astype(single)).astype(half), 1)
    good(call(lib.cublasSgemmEx, h, 0, 0, 4, 3, 6, scalar(1, single), there(a)[0], 2, 4,
              there(b)[0], 2, 6,
              scalar(0, single), pc, 2, 4))
    agree(back(), (a.astype(single) @ b.astype(single)).astype(half), 1)
    a, b, c = (numbers(s, half) for s in ((4, 6, 2), (6, 3, 2), (4, 3, 2)))
    pc, back = there(c)
    good(call(lib.cublasGemmStridedBatchedEx, h, 0, 0, 4, 3, 6, scalar(1, half), there(a)[0], 2,
              4, 24,
              there(b)[0], 2, 6, 18, scalar(0, half), pc, 2, 4, 12, 2, 64, -1))
    agree(back(), np.einsum("ijz,jkz->ikz", a.astype(single), b.astype(single)).astype(half), 1)
    """
    assert run_mathematics(START, program) == ""


def test_scalars_and_results_may_lie_on_the_device_and_streams_keep_their_order():
    program = """
    x, y = numbers((64,), np.float64), numbers((64,), np.float64)
    good(lib.cublasSetPointerMode_v2(handle, 1))
    good(lib.cublasSetStream_v2(handle, ctypes.c_void_p(int(stream))))
    (px, _), (py, back), (pr, result) = map(there, (x, y, np.zeros(1)))
    factor, _ = there(np.zeros(1))
    four = np.array([4.0])
    ok(d.cuMemcpyHtoDAsync(factor, four.ctypes.data, 8, stream))
    good(call(lib.cublasDaxpy_v2, h, 64, factor, px, 1, py, 1))
    good(call(lib.cublasDdot_v2, h, 64, py, 1, px, 1, pr))
    ok(d.cuStreamSynchronize(stream))
    agree(back(), y + 4 * x, 9)
    agree(result(), np.array([(y + 4 * x) @ x]), 99)
    ok(d.cuStreamBeginCapture(stream, 0))
    good(call(lib.cublasDaxpy_v2, h, 64, factor, px, 1, py, 1))
    graph = ok(d.cuStreamEndCapture(stream))
    run = ok(d.cuGraphInstantiate(graph, 0))
    agree(back(), y + 4 * x, 9)
    for _ in range(2):
        ok(d.cuGraphLaunch(run, stream))
    ok(d.cuStreamSynchronize(stream))
    agree(back(), y + 12 * x, 9)
    """
    assert run_mathematics(START, program) == ""


def test_what_is_wrong_is_a_code_and_a_sentence():
    program = """
    x = numbers((8,), np.float32)
    px, _ = there(x)
    one = scalar(1, np.float32)
    print(call(lib.cublasSaxpy_v2, h, 9, one, px, 1, px, 1), flush=True)
    print(call(lib.cublasSaxpy_v2, 5, 8, one, px, 1, px, 1), flush=True)
    print(call(lib.cublasSgemm_v2, h, 0, 0, 3, 1, 1, one, px, 2, px, 1, one, px, 3), flush=True)
    print(call(lib.cublasSgemm_v2, h, 3, 0, 1, 1, 1, one, px, 1, px, 1, one, px, 1), flush=True)
    print(call(lib.cublasSgetrfBatched, h, 2, px, 2, px, px, 1), flush=True)
    print(call(lib.cublasGemmEx, h, 0, 0, 1, 1, 1, one, px, 3, 1, px, 3, 1, one, px, 10, 1, 72, -1))
    table_, _ = there(np.array([px, px, px - 64], np.uint64))
    good(call(lib.cublasSgemmBatched, h, 0, 0, 1, 1, 1, one, table_, 1, table_ + 8, 1, one,
              table_ + 16, 1, 1))
    print(code(d.cuCtxSynchronize()))
    """
    printed = run_mathematics(START, program)
    codes = [line for line in printed.splitlines() if line.isdigit()]
    assert codes == ["7", "1", "7", "7", "15", "15"], printed
    assert "cublasSaxpy_v2: 36 bytes at" in printed
    assert "pass the end" in printed
    assert "there is no cuBLAS handle 0x5" in printed
    assert "the leading dimension 2 is less than the 3 rows" in printed
    assert "there is no cublasOperation_t 3" in printed
    assert "cublasSgetrfBatched: the software GPU does not model it" in printed
    assert "matrices of cudaDataType 3 are not modelled" in printed
    assert "ILLEGAL_ADDRESS" in printed
