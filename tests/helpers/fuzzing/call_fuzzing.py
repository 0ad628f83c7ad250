"""Every function of the driver with arguments that no program should pass.

Run this with three numbers: the first function, the step to the next one, and the calls of each. A
function's name is printed before its call, so the last name is the function that a process died in.
No call could hurt a right program: memory is the program's own, or does not exist.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import re
import sys
import tempfile

from cuda.bindings import driver as d

from cudasync.softgpu import _tables, install
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.signatures import UnknownSignature, argument_types, c_signature

SEED = 20261121
PAGES = 1 << 16
KNOWN = {int(code) for code in d.CUresult}
NUMBERS = [0, 1, 2, 3, 7, 8, 31, 64, 4096, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
NOWHERE = [1, 8, 4095, 0xDEAD0000, 2**47 - 4096, 2**63, 2**64 - 8]
# These functions end the process's use of the driver, or wait for an act of the program.
LEFT_OUT = re.compile(r"cuStreamWaitValue|cuStreamBatchMemOp|cudasync|nv|cuProcess|cuCheckpoint")
PTX = b""".version 6.4
.target sm_75
.address_size 64
.visible .global .u32 word;
.visible .entry nothing(.param .u64 nothing_word) { ret; }
"""


class Pages:
    """Our own memory with a hole behind it, so that no access continues into other memory."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.start = libc.mmap(None, 2 * PAGES, 3, 0x22, -1, 0)
        libc.munmap(self.start + PAGES, PAGES)
        self.words = (ctypes.c_uint64 * (PAGES // 8)).from_address(self.start)


class Objects:
    """One object of each kind, which a hostile call passes for another kind."""

    def __init__(self) -> None:
        self.context = int(d.cuDevicePrimaryCtxRetain(0)[1])
        d.cuCtxSetCurrent(d.CUcontext(self.context))
        made = [
            d.cuStreamCreate(1),
            d.cuEventCreate(0),
            d.cuModuleLoadData(PTX),
            d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0),
            d.cuMemAlloc(4096),
            d.cuMemHostAlloc(4096, 0),
            d.cuMemAllocManaged(4096, 1),
            d.cuDeviceGetDefaultMemPool(0),
            d.cuGraphCreate(0),
            d.cuMemAddressReserve(2 << 20, 0, 0, 0),
            d.cuLinkCreate(0, [], []),
        ]
        self.handles = [self.context, *(int(each[1]) for each in made if int(each[0]) == 0)]
        module = d.CUmodule(self.handles[3])
        found = d.cuModuleGetFunction(module, b"nothing")
        if int(found[0]) == 0:
            self.handles.append(int(found[1]))
        gone = d.cuStreamCreate(0)[1]
        d.cuStreamDestroy(gone)
        self.handles.append(int(gone))


def argument(kind, text, objects, buffer, draw):
    """One value of a C type."""
    if kind in (ctypes.c_float, ctypes.c_double):
        return draw.choice([0.0, -1.0, 1e30])
    if "*" in text:
        place = buffer.start
        return draw.choice([0, place, place, place + 1024, draw.choice(NOWHERE)])
    if text in ("CUhostFn", "CUstreamCallback"):
        return draw.choice([0, buffer.start, *NOWHERE])
    pointers = [buffer.start] if kind is ctypes.c_uint64 else []
    value = draw.choice([draw.choice(NUMBERS), draw.choice(objects.handles), *pointers])
    return kind(value).value


def fill(buffer, objects, draw):
    """Fill the memory behind a pointer: zeros, handles, or random bytes."""
    match draw.randrange(3):
        case 0:
            ctypes.memset(buffer.start, 0, PAGES)
        case 1:
            few = [0, 1, 2, *objects.handles]
            buffer.words[:256] = [draw.choice(few) for _ in range(256)]
        case _:
            ctypes.memmove(buffer.start, draw.randbytes(4096) + bytes(64), 4160)


def main(first: int, step: int, rounds: int, only: str = "") -> None:
    faulthandler.enable()
    os.chdir(tempfile.mkdtemp())
    install()
    d.cuInit(0)
    table = _tables[0]
    names = {e.name for e in registry.entries()} | set(d.__dict__)
    keys = [(e.name, e.version, e.signature) for e in registry.entries()]
    here = {key[0] for key in keys}
    keys += [(n, 0, "") for n in sorted(names) if n.startswith("cu") and n not in here]
    calls, buffer = 0, Pages()
    for name, version, signature in sorted(keys)[first::step]:
        if only and name != only:
            continue
        text = signature or c_signature(name)
        if text is None or LEFT_OUT.match(name):
            continue
        try:
            kinds = argument_types(text)
        except UnknownSignature:
            continue
        texts = text.removeprefix("CUresult (").rstrip(")").split(",")
        draw = random.Random(f"{SEED} {name} {version}")
        call = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(table.address(name, version))
        sys.stderr.write(f"{name} {version}\n")
        for _ in range(rounds):
            faulthandler.dump_traceback_later(20, exit=True)
            objects = Objects()
            fill(buffer, objects, draw)
            values = [
                argument(kind, each, objects, buffer, draw)
                for kind, each in zip(kinds, texts, strict=False)
            ]
            code = call(*values)
            assert code in KNOWN, (name, values, code)
            calls += 1
            d.cuMemHostUnregister(buffer.start)
            d.cuDevicePrimaryCtxReset(0)
    faulthandler.cancel_dump_traceback_later()
    print("calls", calls)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
