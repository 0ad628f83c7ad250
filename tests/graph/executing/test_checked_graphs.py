"""CUDASYNC_CHECK=1 checks blocks, and launches on a stream, against the declarations inside them.

A process has this mode from its start, so all cases run in one process.
"""

from __future__ import annotations

import json

import pytest
from helpers.repository.subprocesses import run_text

CASES = r"""
import json
from contextlib import suppress
import numpy as np
import cudasync as cs

PTX = '''
.version 6.4
.target sm_75
.address_size 64
.visible .entry more(.param .u64 target, .param .u32 times)
{
    .reg .b32 %r_times, %r_held;
    .reg .b64 %rd_target;
    ld.param.u64 %rd_target, [target];
    ld.param.u32 %r_times, [times];
    cvta.to.global.u64 %rd_target, %rd_target;
    ld.global.u32 %r_held, [%rd_target];
    add.u32 %r_held, %r_held, %r_times;
    st.global.u32 [%rd_target], %r_held;
    ret;
}
'''
more = cs.Module.from_ptx(PTX).kernel("more")
found = {}


def ran(name, wrong, block, on_stream):
    x, rounds = cs.zeros(4, np.int32), cs.zeros(1, np.int32)
    source = cs.array(np.arange(4, dtype=np.int32))
    # What a segment is held to is what all of its nodes declare: of y only this one does.
    y = cs.zeros(4, np.int32)
    given = cs.In(y) if wrong else x
    with cs.graph() as g:
        rounds += 2
        if block == "none":
            cs.copy(x, source)
            more[1, 1](given, np.uint32(1))
        else:
            blocks = {"repeat": lambda: g.repeat(2), "cond": lambda: g.cond(rounds),
                      "while_loop": lambda: g.while_loop(rounds)}
            with blocks[block]():
                cs.copy(x, source)
                rounds -= 1
                more[1, 1](given, np.uint32(1))
    executable = g.instantiate(without=("unroll",))
    try:
        executable.launch(cs.Stream() if on_stream else None).wait()
        found[name] = x.numpy().tolist(), rounds.numpy().tolist()
    except cs.CudasyncError as error:
        # A stream of a device that is lost by then says so itself.
        found[name] = str(error)
        with suppress(cs.OpError):
            cs.engine().waitall()
        cs.engine().clear_errors()
        cs.Device(0).reset()


with cs.Engine(MODE) as engine, cs.use(engine):
    for block in ("none", "repeat", "cond", "while_loop"):
        for on_stream in (False, True):
            ran(f"{block} {on_stream} right", False, block, on_stream)
    for block in ("none", "repeat", "cond", "while_loop"):
        for on_stream in (False, True):
            more = cs.Module.from_ptx(PTX).kernel("more")
            ran(f"{block} {on_stream} wrong", True, block, on_stream)
    engine.clear_errors()
print(json.dumps(found), flush=True)
"""
ROUNDS = {"none": 2, "repeat": 0, "cond": 1, "while_loop": 0}


@pytest.fixture(scope="module", params=["async", "serial"])
def found(request):
    source = CASES.replace("MODE", repr(request.param))
    code, printed = run_text(source, 120, CUDASYNC_CHECK="1", CUDASYNC_DEVICE="soft")
    assert code == 0, printed
    return json.loads(printed.splitlines()[-1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("on_stream", [False, True], ids=["", "on a stream"])
@pytest.mark.parametrize("block", ROUNDS)
def test_what_keeps_to_it_runs_as_always(found, block, on_stream):
    assert found[f"{block} {on_stream} right"] == [[1, 1, 2, 3], [ROUNDS[block]]]


@pytest.mark.parametrize("on_stream", [False, True], ids=["", "on a stream"])
@pytest.mark.parametrize("block", ROUNDS)
def test_what_does_not_is_named(found, block, on_stream):
    told = found[f"{block} {on_stream} wrong"]
    assert isinstance(told, str)
    assert "kernel more, PTX line" in told
    assert "of argument 1 (target) is written, but declared" in told
