"""Kernels and calls that a driver must survive, with the result code of each.

`main` runs all of them in one process, one after the other, and resets the primary context between
them. It prints a line for each, with the outcome and the problems found afterwards.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_PTX = 0, 1, 2, 218
INVALID_HANDLE, ILLEGAL_ADDRESS, OUT_OF_RESOURCES, TIMEOUT = 400, 700, 701, 702
ASSERT, MISALIGNED, LAUNCH_FAILED, COOPERATIVE_TOO_LARGE, NOT_SUPPORTED = 710, 716, 719, 720, 801

HEAD = """.version 6.4
.target sm_75
.address_size 64
"""
ENTRY = """.visible .entry test(.param .u64 target)
{
    .reg .u32 %thread, %lane, %value, %other, %third, %fourth;
    .reg .u64 %rd_target, %rd_wild;
    .reg .pred %p, %q;
    .shared .align 8 .b8 words[64];
    .local .align 8 .b8 own[16];
    ld.param.u64 %rd_target, [target];
    mov.u32 %thread, %tid.x;
    mov.u32 %lane, %laneid;
"""
LAST = "\nret;\n}\n"


@dataclass(frozen=True)
class Kernel:
    """A kernel with one parameter, a buffer of 64 zero words."""

    body: str
    code: int
    grid: tuple[int, int, int] = (2, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)
    before: str = ""
    shared_bytes: int = 0

    @property
    def ptx(self) -> str:
        return HEAD + self.before + ENTRY + self.body + LAST


def wild(address: str, access: str, code: int) -> Kernel:
    return Kernel(f"mov.u64 %rd_wild, {address};\n{access}", code)


_LOAD = "ld.global.u32 %value, [%rd_wild]; st.global.u32 [%rd_target], %value;"
_STORE = "st.global.u32 [%rd_wild], %lane;"
_RECURSIVE = """.func (.reg .u32 %result) deeper(.reg .u32 %depth)
{
    .reg .u32 %next;
    .reg .pred %p;
    mov.u32 %result, 7;
    setp.eq.u32 %p, %depth, 0;
    @%p ret;
    sub.u32 %next, %depth, 1;
    call (%result), deeper, (%next);
    add.u32 %result, %result, 1;
    ret;
}
"""
_SPIN_IN_FUNCTION = """.func never()
{
    .reg .u32 %i;
again:
    add.u32 %i, %i, 1;
    bra again;
}
"""


def doubling(count: int) -> str:
    """Functions that each call the next one twice: 2 ** count calls."""
    text = ".func f0(.reg .u32 %x) { ret; }\n"
    for index in range(1, count):
        call = f"call f{index - 1}, (%x);"
        text += f".func f{index}(.reg .u32 %x) {{ {call} {call} ret; }}\n"
    return text


KERNELS: dict[str, Kernel] = {
    # Wild pointers.
    "read_null": wild("0", _LOAD, ILLEGAL_ADDRESS),
    "write_null": wild("0", _STORE, ILLEGAL_ADDRESS),
    "read_low": wild("8", _LOAD, ILLEGAL_ADDRESS),
    "read_last": wild("0xfffffffffffffffc", _LOAD, ILLEGAL_ADDRESS),
    "write_last": wild("0xfffffffffffffffc", _STORE, ILLEGAL_ADDRESS),
    "read_not_canonical": wild("0x8000000000000000", _LOAD, ILLEGAL_ADDRESS),
    "write_not_canonical": wild("0x7ffffffffffffffc", _STORE, ILLEGAL_ADDRESS),
    "read_past_end": Kernel("ld.global.u32 %value, [%rd_target+256];", ILLEGAL_ADDRESS),
    "write_past_end": Kernel("st.global.v4.u32 [%rd_target+256], {%lane,%lane,%lane,%lane};",
                             ILLEGAL_ADDRESS),
    "write_before": Kernel("st.global.u8 [%rd_target+-1], %lane;", ILLEGAL_ADDRESS),
    "write_far_by_lane": Kernel("mad.wide.u32 %rd_wild, %lane, 0x7fffffff, %rd_target;\n"
                                "and.b64 %rd_wild, %rd_wild, -4;\n" + _STORE, ILLEGAL_ADDRESS),
    "last_lane_past_end": Kernel("mad.wide.u32 %rd_wild, %lane, 8, %rd_target;\nadd.u64 %rd_wild,"
                                 " %rd_wild, 8;\nst.global.u64 [%rd_wild], 1;", ILLEGAL_ADDRESS),
    "read_wild_generic": wild("0x123456789abc", "ld.u32 %value, [%rd_wild];", ILLEGAL_ADDRESS),
    "atom_wild": wild("0x123456789abc", "atom.global.add.u32 %value, [%rd_wild], 1;",
                      ILLEGAL_ADDRESS),
    "red_wild": wild("0x123456789abc", "red.global.add.f32 [%rd_wild], 0f3F800000;",
                     ILLEGAL_ADDRESS),
    "cas_wild": wild("-8", "atom.cas.b64 %rd_wild, [%rd_wild], 1, 2;", ILLEGAL_ADDRESS),
    "shared_past_end": Kernel("st.shared.u32 [words+64], 1;", ILLEGAL_ADDRESS),
    "shared_negative": Kernel("mov.u32 %value, -4; ld.shared.u32 %value, [%value];",
                              ILLEGAL_ADDRESS),
    "shared_huge": Kernel("mov.u32 %value, 0x7ffffffc; st.shared.u32 [%value], %lane;",
                          ILLEGAL_ADDRESS),
    "shared_atom_past_end": Kernel("atom.shared.add.u32 %value, [words+64], 1;", ILLEGAL_ADDRESS),
    "local_past_end": Kernel("mul.lo.u32 %value, %lane, 4; st.local.u32 [%value], 1;",
                             ILLEGAL_ADDRESS),
    "local_huge": Kernel("mov.u32 %value, 0x40000000; ld.local.u32 %value, [%value];",
                         ILLEGAL_ADDRESS),
    # Misaligned accesses.
    "misaligned_load": Kernel("ld.global.u32 %value, [%rd_target+2];", MISALIGNED),
    "misaligned_store": Kernel("st.global.u64 [%rd_target+4], %rd_target;", MISALIGNED),
    "misaligned_vector": Kernel("ld.global.v4.u32 {%value,%other,%third,%fourth}, [%rd_target+8];",
                                MISALIGNED),
    "misaligned_by_lane": Kernel("mad.wide.u32 %rd_wild, %lane, 3, %rd_target;\n" + _STORE,
                                 MISALIGNED),
    "misaligned_atom": Kernel("atom.global.add.u32 %value, [%rd_target+1], 1;", MISALIGNED),
    "misaligned_shared": Kernel("ld.shared.u32 %value, [words+1];", MISALIGNED),
    "misaligned_local": Kernel("ld.local.u32 %value, [own+2];", MISALIGNED),
    # Barriers.
    "barriers_that_never_meet": Kernel("setp.eq.u32 %p, %thread, 0;\n@%p bra other;\nbar.sync 1;\n"
                                       "other:\nbar.sync 2;", LAUNCH_FAILED),
    "barrier_in_one_arm": Kernel("setp.lt.u32 %p, %thread, 32;\n@%p bra other;\nbar.sync 1, 64;\n"
                                 "other:\nbar.sync 0;", LAUNCH_FAILED),
    "barrier_that_wants_too_many": Kernel("bar.sync 1, 96;\nst.global.u32 [%rd_target], 1;",
                                          LAUNCH_FAILED),
    "barrier_after_exit": Kernel("setp.lt.u32 %p, %thread, 40;\n@%p exit;\nbar.sync 0;\n"
                                 "st.global.u32 [%rd_target], 1;", OK),
    # Endless kernels.
    "endless": Kernel("again:\nbra again;", TIMEOUT),
    "endless_for_some": Kernel("setp.gt.u32 %p, %lane, 20;\nagain:\n@%p bra again;", TIMEOUT),
    "endless_that_counts": Kernel("again:\nadd.u32 %value, %value, 1;\nbra again;", TIMEOUT),
    "endless_that_loads": Kernel("again:\nld.global.u32 %value, [%rd_target];\n"
                                 "setp.eq.u32 %p, %value, 0;\n@%p bra again;", TIMEOUT),
    "endless_wait": Kernel("again:\nld.volatile.global.u32 %value, [%rd_target];\n"
                           "setp.eq.u32 %p, %value, 0;\n@%p bra again;", TIMEOUT),
    "endless_wait_of_lanes": Kernel("add.u32 %other, %lane, 9;\nagain:\n"
                                    "ld.acquire.gpu.u32 %value, [%rd_target];\n"
                                    "setp.ne.u32 %p, %value, %other;\n@%p bra again;", TIMEOUT),
    "endless_wait_of_many_blocks": Kernel("again:\nld.volatile.global.u32 %value, [%rd_target];\n"
                                          "setp.eq.u32 %p, %value, 0;\n@%p bra again;", TIMEOUT,
                                          grid=(1500, 1, 1), block=(32, 1, 1)),
    "endless_sleep": Kernel("again:\nnanosleep.u32 1000;\nbra again;", TIMEOUT),
    "endless_lock": Kernel("again:\natom.global.cas.b32 %value, [%rd_target], 0, 1;\n"
                           "setp.ne.u32 %p, %value, 0;\n@%p bra again;", TIMEOUT),
    "endless_atomics": Kernel("again:\natom.global.add.u32 %value, [%rd_target], 2;\n"
                              "and.b32 %value, %value, 1;\nsetp.eq.u32 %p, %value, 0;\n"
                              "@%p bra again;", TIMEOUT),
    "endless_atomics_of_many_blocks": Kernel("again:\natom.global.add.u32 %value, [%rd_target], 2;"
                                             "\nand.b32 %value, %value, 1;\n"
                                             "setp.eq.u32 %p, %value, 0;\n@%p bra again;",
                                             TIMEOUT, grid=(900, 1, 1), block=(32, 1, 1)),
    "endless_barriers": Kernel("again:\nbar.sync 0;\nbra again;", TIMEOUT),
    "endless_shuffles": Kernel("again:\nbar.warp.sync 0xffffffff;\nbra again;", TIMEOUT),
    "endless_function": Kernel("call never;", TIMEOUT, before=_SPIN_IN_FUNCTION),
    "endless_calls": Kernel("call f59, (%lane);", TIMEOUT, before=doubling(60)),
    "two_loops": Kernel("outer:\nmov.u32 %value, 0;\ninner:\nadd.u32 %value, %value, 1;\n"
                        "setp.lt.u32 %p, %value, 1000;\n@%p bra inner;\nbra outer;", TIMEOUT),
    "endless_grid": Kernel("", TIMEOUT, grid=(2**31 - 1, 65535, 65535), block=(1024, 1, 1)),
    "endless_grid_that_works": Kernel("red.global.add.u32 [%rd_target], 1;", TIMEOUT,
                                      grid=(2**31 - 1, 65535, 1)),
    # Recursion.
    "recursion": Kernel("call (%value), deeper, (20);\nst.global.u32 [%rd_target], %value;", OK,
                        before=_RECURSIVE),
    "deep_recursion": Kernel("call (%value), deeper, (1000000);", ILLEGAL_ADDRESS,
                             before=_RECURSIVE),
    "unbounded_recursion": Kernel("mov.u32 %value, -1;\ncall (%value), deeper, (%value);",
                                  ILLEGAL_ADDRESS, before=_RECURSIVE),
    "recursion_of_one_lane": Kernel("setp.eq.u32 %p, %lane, 9;\nselp.u32 %value, -1, 1, %p;\n"
                                    "call (%value), deeper, (%value);", ILLEGAL_ADDRESS,
                                    before=_RECURSIVE),
    # Kernels that end in other ways.
    "trap": Kernel("trap;", LAUNCH_FAILED),
    "trap_of_one_lane": Kernel("setp.eq.u32 %p, %thread, 33;\n@%p trap;", LAUNCH_FAILED),
    "brkpt": Kernel("brkpt;", LAUNCH_FAILED),
    "divide_by_zero": Kernel("mov.u32 %value, 0;\ndiv.u32 %other, %lane, %value;\n"
                             "rem.s32 %other, %other, %value;\nst.global.u32 [%rd_target], %other;",
                             OK),
    # Wrong launches.
    "no_grid": Kernel("", INVALID_VALUE, grid=(0, 1, 1)),
    "no_block": Kernel("", INVALID_VALUE, block=(32, 0, 1)),
    "block_of_too_many": Kernel("", INVALID_VALUE, block=(1025, 1, 1)),
    "block_too_large_by_product": Kernel("", INVALID_VALUE, block=(33, 32, 1)),
    "block_too_deep": Kernel("", INVALID_VALUE, block=(1, 1, 65)),
    "block_that_overflows": Kernel("", INVALID_VALUE, block=(2**31, 2, 1)),
    "grid_too_wide": Kernel("", INVALID_VALUE, grid=(2**31, 1, 1)),
    "grid_too_high": Kernel("", INVALID_VALUE, grid=(1, 65536, 1)),
    "grid_too_deep": Kernel("", INVALID_VALUE, grid=(1, 1, 2**32 - 1)),
    "too_much_shared": Kernel("", INVALID_VALUE, shared_bytes=(48 << 10) + 1),
    "far_too_much_shared": Kernel("", INVALID_VALUE, shared_bytes=2**32 - 1),
    # More memory than there is.
    "huge_shared": Kernel("st.shared.u32 [huge+4], 1;", INVALID_PTX,
                          before=".shared .align 8 .b8 huge[100000000];\n"),
    "huge_shared_of_nobody": Kernel("", OK, before=".shared .align 8 .b8 huge[100000000];\n"),
    "huge_global": Kernel("", OUT_OF_MEMORY, before=".global .align 8 .b8 huge[100000000000];\n"),
    "huge_local": Kernel(".local .align 8 .b8 huge[100000000];\nst.local.u32 [huge+4], 1;",
                         INVALID_PTX),
    "large_local": Kernel(".local .align 8 .b8 large[500000];\nst.local.u32 [large+499996], 1;",
                          OK, block=(1024, 1, 1)),
}  # fmt: skip


class Driver:
    """The calls that the cases need, on device 0."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        from cudasync.softgpu import install

        install()
        self.d = driver
        assert not self.code(driver.cuInit(0))
        self.context = driver.cuDevicePrimaryCtxRetain(0)[1]
        driver.cuCtxSetCurrent(self.context)

    @staticmethod
    def code(result) -> int:
        return int(result[0])

    def kernel(self, ptx: str):
        """Load a text; return the result code, and the function `test`."""
        result = self.d.cuModuleLoadData(ptx.encode() + b"\0")
        if self.code(result):
            return self.code(result), None
        return 0, self.d.cuModuleGetFunction(result[1], b"test")[1]

    def run(self, kernel: Kernel) -> tuple[int, str]:
        """Load, launch and wait; return the first nonzero code and the problems."""
        d = self.d
        code, function = self.kernel(kernel.ptx)
        if code:
            return code, ""
        target = d.cuMemAlloc(256)[1]
        d.cuMemsetD32(target, 0, 64)
        launched = self.code(
            d.cuLaunchKernel(
                function, *kernel.grid, *kernel.block, kernel.shared_bytes, 0,
                ((int(target),), (ctypes.c_uint64,)), 0,
            )
        )  # fmt: skip
        if launched:
            return launched, self.sentence(launched, "test")
        code = self.code(d.cuCtxSynchronize())
        if not code:
            return 0, ""
        wrong = self.sentence(code, "kernel test, PTX line ")
        if self.code(d.cuMemAlloc(64)) != code:
            wrong += " the fault is not sticky;"
        return code, wrong

    def sentence(self, code: int, part: str) -> str:
        text = self.d.cuGetErrorString(self.d.CUresult(code))[1].decode()
        return "" if part in text else f" no {part!r} in {text!r};"

    def heal(self) -> str:
        """Reset the context; return "" if a good kernel runs afterwards."""
        self.d.cuDevicePrimaryCtxReset(0)
        self.context = self.d.cuDevicePrimaryCtxRetain(0)[1]
        self.d.cuCtxSetCurrent(self.context)
        code, _ = self.run(Kernel("st.global.u32 [%rd_target], 1;", OK))
        return f" afterwards a good kernel ended in {code};" if code else ""


def main(names: list[str]) -> None:
    driver = Driver()
    for name in names:
        kernel = KERNELS[name]
        code, wrong = driver.run(kernel)
        if code != kernel.code:
            wrong += f" {code} is not {kernel.code};"
        print(f"{name}:{wrong}{driver.heal()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(KERNELS))
