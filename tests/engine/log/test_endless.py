"""Programs with endless work end: by Ctrl-C, by an exception, or by a reset.

Each program ends by itself, and one line says what was stopped, left or dropped.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.repository.subprocesses import run_program

pytestmark = pytest.mark.sampled(2)

PTX = """.version 7.0
.target sm_75
.address_size 64
.visible .entry endless(.param .u64 words)
{
    .reg .b32 %value;
    .reg .b64 %rd_words;
    ld.param.u64 %rd_words, [words];
    mov.u32 %value, 1;
again:
    BODY
    st.global.u32 [%rd_words], %value;
    bra again;
}
"""
BODIES = {
    "arithmetic": "mad.lo.u32 %value, %value, 5, 3;",
    "a volatile word": "ld.volatile.global.u32 %value, [%rd_words+4];",
    "a sleep": "nanosleep.u32 100;",
    "a barrier": "bar.sync 0;",
}
PREPARE = """
words = cs.zeros(4, np.int32)
kernel = cs.Module.from_ptx({text!r}).kernel("endless")
def begin(block=32):
    op = kernel[1, block](words)
    words_of_others = cs.zeros(1)
    cs.engine().push(lambda: None, reads=[words], name="behind")
    return op
def interrupt():
    signal.raise_signal(signal.SIGINT)
"""
ENDINGS = {
    "Ctrl-C in a wait": ("op = begin(); cs.engine().push(interrupt); op.wait()", -2, "Ctrl-C"),
    "an exception": ("begin(); raise LookupError('of the program')", 1, "an exception"),
    "Ctrl-C in a block": (
        "with cs.Engine():\n    op = begin(); cs.engine().push(interrupt); op.wait()",
        -2,
        "Ctrl-C",
    ),
    "an exception in a block": (
        "with cs.Engine():\n    begin()\n    raise LookupError('of the program')",
        1,
        "an exception",
    ),
}
# Each body, scheduler and memcheck setting meets each of the others at least once.
SETTINGS = [
    ("arithmetic", "fifo", "1"),
    ("arithmetic", "seed=3", "0"),
    ("arithmetic", "threaded", "1"),
    ("a volatile word", "fifo", "0"),
    ("a volatile word", "threaded", "1"),
    ("a sleep", "seed=3", "1"),
    ("a barrier", "fifo", "1"),
    ("a barrier", "threaded", "0"),
]


def program(body: str, what: str) -> str:
    return PREPARE.format(text=PTX.replace("BODY", BODIES[what])) + body


def told(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("cudasync: ")]


def _all_endings() -> list[Any]:
    """Each setting with each ending; without --run-slow each setting with one of them."""
    cases = []
    for row, setting in enumerate(SETTINGS):
        for column, ending in enumerate(ENDINGS):
            is_usual = column == row % len(ENDINGS)
            marks = () if is_usual else (pytest.mark.slow,)
            cases.append(pytest.param(*setting, ending, marks=marks))
    return cases


@pytest.mark.parametrize(("what", "scheduler", "memcheck", "ending"), _all_endings())
def test_a_program_ends_beside_a_kernel_that_does_not(what, scheduler, memcheck, ending):
    """The program prints its own traceback, and names the kernel, its line and its stream."""
    body, wanted, how = ENDINGS[ending]
    code, printed = run_program(
        program(body, what),
        deadline_s=60,
        CUDASYNC_DEVICE="soft",
        CUDASYNC_SOFTGPU_SCHEDULER=scheduler,
        CUDASYNC_MEMCHECK=memcheck,
    )
    assert code == wanted, printed
    assert ("KeyboardInterrupt" if wanted == -2 else "LookupError: of the program") in printed
    # A slow machine may print more lines, about other work that had not begun.
    (line,) = [each for each in told(printed) if "op 'endless'" in each]
    assert line.startswith(f"cudasync: left by {how}: op 'endless', pushed at ")
    assert "was stopped on device 0 stream " in line
    assert "kernel endless, PTX line " in line


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scheduler", ["fifo", "threaded"])
@pytest.mark.parametrize("what", ["arithmetic", "a volatile word"])
def test_what_follows_a_wait_that_ctrl_c_ended_does_not_wait_for_ever(what, scheduler):
    """Other work, `clear_errors` and a reset end, and the device is usable."""
    body = """
op = begin(1)
# The push as well: the worker may be there before it returns.
try: cs.engine().push(interrupt); op.wait()
except KeyboardInterrupt: print("interrupted")
try: assert not cs.zeros(2).numpy().any()
except cs.OpError as error: assert "kernel endless, PTX line" in str(error), error
try: cs.engine().clear_errors()
except cs.CudasyncError as error:
    assert "op 'endless', pushed at" in str(error) and "still runs" in str(error), error
cs.Device(0).reset()
cs.engine().clear_errors()
print(cs.zeros(2).numpy())
"""
    code, printed = run_program(
        program(body, what),
        deadline_s=60,
        CUDASYNC_DEVICE="soft",
        CUDASYNC_SOFTGPU_SCHEDULER=scheduler,
    )
    assert (code, printed) == (0, "interrupted\n[0. 0.]\n")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("pool", ["compute", "io"])
@pytest.mark.parametrize("endless", ["never.wait()", "[None for _ in iter(int, 1)]"])
@pytest.mark.parametrize("where", ["with cs.Engine(pools={'io': 1}) as engine:", "if True:"])
def test_one_ctrl_c_ends_a_program_whose_host_op_does_not_end(where, endless, pool):
    """Python cannot end the thread. The process ends without it, and says so."""
    body = f"""
x, pushed, never = cs.Var("x"), threading.Event(), threading.Event()
engine = cs.Engine(pools={{"io": 1}})
def slow():
    pushed.wait()
    signal.raise_signal(signal.SIGINT)
    {endless}
{where}
    op = engine.push(slow, writes=[x], pool={pool!r})
    for _ in range(3):
        engine.push(print, reads=[x])
    pushed.set()
    op.wait()
"""
    code, printed = run_program(body, deadline_s=60)
    assert code == -2, printed
    assert "\nKeyboardInterrupt\n" in printed
    (line,) = told(printed)
    assert line.startswith("cudasync: left by Ctrl-C: op 'slow', pushed at ")
    # The order in which the workers take ops is not fixed.
    ending = rf"still ran on worker {pool} \d; 3 ops that had not begun were dropped"
    assert re.search(ending + "$", line)


def test_a_program_that_ends_beside_an_endless_kernel_says_what_it_waits_for():
    """No one asked for an end, so the program waits for the work. Ctrl-C ends the wait."""
    body = """
begin()
write = sys.stderr.write
class Told:
    def write(self, text):
        write(text)
        if text.startswith("cudasync: the program has ended"):
            interrupt()
    def flush(self): pass
sys.stderr = Told()
"""
    # A fast machine does not run so many steps before the line is printed.
    budget = str(1 << 60)
    code, printed = run_program(
        program(body, "arithmetic"),
        deadline_s=60,
        CUDASYNC_DEVICE="soft",
        CUDASYNC_SOFTGPU_BUDGET=budget,
    )
    # Python's status for an error in the clean-up.
    assert code == 120, printed
    first, second = told(printed)
    assert "op 'endless', pushed at" in first
    assert first.endswith("waiting for it; Ctrl-C ends the wait")
    assert "was stopped on device 0 stream" in second
