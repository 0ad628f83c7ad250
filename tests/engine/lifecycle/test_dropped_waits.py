"""An event wait that the engine drops: `fifo` lets it pass, `seed=N` and `explore` find it.

The program waits for the whole device, so `fifo` runs its commands in the order of the code.
"""

from __future__ import annotations

from helpers.engine_programs.judge import differences, replay_line
from helpers.engine_programs.strategies import programs, settings
from helpers.repository.subprocesses import run_program
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from cudasync.testing import explore

# An op may be planned in either of two places, so there are two bugs.
BUGS = ("event waits are dropped", "a launch is taken to be behind all streams")
PROGRAM = f'''
from helpers.engine_programs.planted_bugs import plant

def program(has_bug):
    """Two arrays from one, on a stream each, and their sum; again and again."""
    kernel = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
    n, undo = 64, []

    def put(owner, name, value):
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    with cs.Engine() as engine:
        x, y, z = (cs.array(np.full(n, value, np.float32)) for value in (1, 10, 100))
        engine.waitall()
        for bug in {BUGS} if has_bug else ():
            plant(bug, put)
        shape, meant_y, meant_z = ((1,), (n,)), 10, 100
        for _ in range(8):
            kernel[shape](np.float32(2), x, y, np.uint32(n))
            kernel[shape](np.float32(3), x, z, np.uint32(n))
            kernel[shape](np.float32(1), y, z, np.uint32(n))
            cs.Device(0).synchronize()
            meant_y += 2
            meant_z += 3 + meant_y
        for each in undo:
            setattr(*each)
        assert (z.numpy() == meant_z).all()
'''
UNDER_ONE_SCHEDULER = (
    PROGRAM
    + """
program(has_bug=False)
try:
    program(has_bug=True)
except AssertionError:
    print("found")
"""
)
UNDER_ALL = (
    UNDER_ONE_SCHEDULER
    + """
from cudasync.testing import explore
explored = explore(lambda: program(has_bug=False))
assert explored.orders == 1, explored
try:
    explore(lambda: program(has_bug=True), most=200)
except AssertionError as error:
    print("explored", *error.__notes__)
"""
)


def outcome(text: str, scheduler: str) -> str:
    code, printed = run_program(text, CUDASYNC_DEVICE="soft", CUDASYNC_SOFTGPU_SCHEDULER=scheduler)
    assert code == 0, printed
    return printed


def test_a_dropped_wait_passes_when_the_oldest_goes_first_but_not_in_every_order():
    printed = outcome(UNDER_ALL, "fifo")
    assert printed.startswith("explored"), printed
    assert "order=" in printed


def test_a_dropped_wait_is_found_by_a_seed():
    assert any("found" in outcome(UNDER_ONE_SCHEDULER, f"seed={seed}") for seed in range(1, 10))


class Differs(AssertionError):
    """A program's result differs from its meaning."""


def check_all_orders(program, setting, *, most):
    def run() -> None:
        found = differences(program, setting)
        if found:
            raise Differs("\n".join([*found, replay_line(program, setting)]))

    return explore(run, most=most)


@hypothesis_settings(max_examples=max(10, hypothesis_settings.default.max_examples // 4))
@given(programs(max_steps=5, fails=True), settings())
def test_small_programs_give_the_serial_result_in_every_order(program, setting):
    explored = check_all_orders(program, setting, most=50)
    assert explored.orders >= 1
