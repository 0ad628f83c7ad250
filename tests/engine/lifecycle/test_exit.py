"""The interpreter ends with work in flight: the work finishes or is given up, without messages.

An op that must be in flight at the end waits for the main thread to end.
"""

from __future__ import annotations

import textwrap

import pytest
from helpers.repository.subprocesses import assert_runs_clean, run_program

PREPARE = """
main = threading.main_thread()
device = cs.Device(0)
x, y, kept = cs.Var("x"), cs.Var("y"), []
def late():
    main.join(PATIENCE_S)
"""

# Called before the engines are closed.
AT_EXIT = """
import atexit
atexit.register(evaluate)
"""

IN_FLIGHT = {
    "a host op that runs": """
        cs.engine().push(late)
    """,
    "a host op on an engine of the program's": """
        engine = cs.Engine(workers=1)
        engine.push(late)
    """,
    "an engine that nobody holds": """
        cs.Engine(workers=1).push(late)
        gc.collect()
    """,
    "more ops than workers": """
        engine = cs.Engine(workers=2, pools={"io": 1})
        for _ in range(20):
            engine.push(late)
            engine.push(late, pool="io")
    """,
    "a long chain of host ops": """
        cs.engine().push(late, writes=[x])
        for _ in range(3000):
            cs.engine().push(lambda: None, reads=[x], writes=[x])
    """,
    "ops that push and wait for others": """
        def outer():
            late()
            cs.engine().push(lambda: None, writes=[y]).wait(PATIENCE_S)
        for _ in range(5):
            cs.engine().push(outer, reads=[x])
    """,
    "kernels": """
        arrays = [cs.zeros(1000, np.int32) for _ in range(5)]
        for a in arrays:
            for b in arrays:
                if a is not b:
                    cs.copy(a, b)
    """,
    "a device op behind a host op": """
        cs.engine().push(late, writes=[x])
        cs.engine().push(lambda stream: None, reads=[x], writes=[y], device=device)
        cs.engine().push(lambda: None, reads=[y])
    """,
    "a host op behind a device op that nobody waits for": """
        cs.engine().push(lambda stream: None, writes=[y], device=device)
        cs.engine().push(lambda: None, reads=[y])
    """,
    "ops that fail": """
        import warnings
        warnings.simplefilter("ignore", cs.UnhandledFailureWarning)
        def fail():
            late()
            raise ValueError("planned")
        cs.engine().push(fail, writes=[x])
        cs.engine().push(lambda: None, reads=[x], writes=[y])
        cs.engine().push(lambda stream: None, reads=[y], device=device)
    """,
    "pushers held back by back-pressure": """
        engine = cs.Engine(workers=1, max_in_flight=2)
        def push():
            try:
                for _ in range(20):
                    engine.push(late)
            except cs.CudasyncError:
                pass
        for _ in range(3):
            threading.Thread(target=push, daemon=True).start()
    """,
    "daemon threads that push and wait": """
        engine = cs.Engine(workers=2)
        has_begun = threading.Barrier(4)
        def push(mine):
            begun = False
            try:
                while True:
                    engine.push(lambda: None, writes=mine).wait(PATIENCE_S)
                    if not begun:
                        begun = True
                        has_begun.wait(PATIENCE_S)
            except cs.CudasyncError:
                pass
        for mine in ([x], [y], [x, y]):
            threading.Thread(target=push, args=(mine,), daemon=True).start()
        has_begun.wait(PATIENCE_S)
    """,
    "a thread that waits for what comes late": """
        op = cs.engine().push(late, writes=[x])
        def wait(by):
            try:
                by()
            except cs.CudasyncError:
                pass
        for by in (op.wait, x.wait, cs.engine().waitall):
            threading.Thread(target=wait, args=(by,), daemon=True).start()
    """,
    "arrays and ops in a cycle of garbage": """
        class Cycle:
            def __init__(self):
                self.me, self.array = self, cs.zeros(100)
                self.op = cs.engine().push(late, reads=[self.array])
        cycles = [Cycle() for _ in range(3)]
        del cycles
    """,
    "a finaliser that pushes": """
        class Late:
            def __del__(self):
                try:
                    cs.engine().push(lambda: None)
                except BaseException:
                    pass
        late_one = Late()
    """,
    "an engine left in the middle of its block": """
        engine = cs.Engine()
        engine.__enter__()
        cs.engine().push(late)
        cs.zeros(100)
    """,
}


def body_of(*names: str) -> str:
    """One program that leaves all these kinds of work in flight."""
    works = [
        f"def work_{index}(x, y):\n{textwrap.indent(textwrap.dedent(IN_FLIGHT[name]), '    ')}\n"
        f"    kept.append(locals())\nwork_{index}(cs.Var('x'), cs.Var('y'))\n"
        for index, name in enumerate(names)
    ]
    return PREPARE + "".join(works)


# All kinds of work, in three programs that mix them.
@pytest.mark.parametrize(
    ("part", "ending", "code"), [(0, "", 0), (1, "sys.exit(7)", 7), (2, "raise SystemExit", 0)]
)
def test_a_program_may_end_with_all_kinds_of_work_in_flight(part, ending, code):
    assert run_program(body_of(*list(IN_FLIGHT)[part::3]) + ending) == (code, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_FLIGHT)
def test_a_program_may_end_with_one_kind_of_work_in_flight(name):
    assert_runs_clean(body_of(name))


def test_host_ops_that_were_pushed_before_the_end_have_run_when_the_program_is_gone():
    """Closing at exit finishes the ops: a file that an op writes is complete."""
    code, printed = run_program(
        PREPARE
        + """
engine = cs.Engine(workers=1)
engine.push(late, writes=[x])
for index in range(5):
    engine.push(lambda i=index: os.write(1, b"%d" % i), reads=[x], writes=[x])
"""
    )
    assert (code, printed) == (0, "01234")


def test_device_ops_that_were_pushed_before_the_end_have_run_when_the_program_is_gone():
    """This includes ops that become ready, behind a host op, only while the program ends."""
    code, printed = run_program(
        PREPARE
        + """
array = cs.zeros(4, np.int32)
cs.engine().push(late, writes=[x])
cs.engine().push(lambda stream: os.write(1, b"device"), reads=[x], writes=[y], device=device)
cs.engine().push(lambda: os.write(1, b" host"), reads=[y])
"""
    )
    assert (code, printed) == (0, "device host")


TEXTS = {
    "nothing": "pass",
    "a named tuple": "import collections; collections.namedtuple('A', 'b')",
    "an error": "raise OSError",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("where", ["in an op", "in a function at exit"])
def test_ctrl_c_ends_a_program_by_its_signal_whatever_is_evaluated_meanwhile(where, text):
    """Python forgets the Ctrl-C as soon as any text is evaluated while the program ends."""
    evaluate = f"""
begun = threading.Event()
def evaluate():
    begun.set()
    if threading.current_thread() is not main:
        late()
    try:
        exec({TEXTS[text]!r})
    except OSError:
        pass
"""
    in_op = "cs.engine().push(evaluate)\nbegun.wait(PATIENCE_S)"
    begin = {"in an op": in_op, "in a function at exit": AT_EXIT}[where]
    code, printed = run_program(PREPARE + evaluate + begin + "\nraise KeyboardInterrupt")
    assert code == -2, printed
    assert "\nKeyboardInterrupt\n" in printed


def test_the_end_of_a_program_imports_no_calls_that_the_program_did_not_make():
    """What is imported late saves time only if the end of each program does not import it."""
    code, printed = run_program(
        """
import atexit
@atexit.register
def tell():
    # Registered first, so called last.
    print("graphs" if "cudasync.softgpu.abi.graph_calls.graph" in sys.modules else "no graphs")
x = cs.zeros(4, np.int32)
cs.copy(x, cs.zeros(4, np.int32))
assert not x.numpy().any()
""",
        CUDASYNC_DEVICE="soft",
    )
    assert (code, printed) == (0, "no graphs\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("raise ValueError('of the program')", 1, "ValueError: of the program"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    ],
)
def test_an_exception_that_ends_the_program_is_all_that_is_told(ending, code, words):
    work = body_of("a long chain of host ops", "ops that fail", "a device op behind a host op")
    got, printed = run_program(f"{work}\n{ending}")
    assert got == code, printed
    # The program also reports the ops that Ctrl-C dropped.
    told, _, dropped = printed.partition(f"\n{words}\n")
    assert "cudasync" not in told
    assert ("were dropped" in dropped) == (words == "KeyboardInterrupt")


def test_os_exit_does_not_wait_for_ops():
    code, printed = run_program(
        PREPARE
        + """
cs.engine().push(lambda: threading.Event().wait())
cs.engine().push(lambda stream: None, device=device)
os._exit(3)
"""
    )
    assert (code, printed) == (3, "")


INTERRUPTED = """
engine, held, has_begun = cs.engine(), threading.Event(), threading.Event()
def hold():
    has_begun.set()
    held.wait(PATIENCE_S)
def interrupt_at_the_end():
    # The main thread waits for the engine, behind the end of the program.
    main.join(PATIENCE_S)
    while not (frame := sys._current_frames().get(main.ident)) or not is_leaving(frame):
        threading.Event().wait(1e-3)
    signal.pthread_kill(main.ident, signal.SIGINT)
    while not engine._is_dropped:
        threading.Event().wait(1e-3)
    held.set()
def is_leaving(frame):
    while frame is not None:
        if frame.f_code.co_name == "wait_looking":
            return True
        frame = frame.f_back
    return False
signal.signal(signal.SIGINT, signal.default_int_handler)
cs.engine().push(hold, writes=[x], name="held")
has_begun.wait(PATIENCE_S)
threading.Thread(target=interrupt_at_the_end, daemon=True).start()
"""
LEFT = {
    "ops": "cs.engine().push(print, reads=[x], writes=[x])",
    "launches of graphs": """
with cs.graph() as g:
    cs.engine().push(print, writes=[x])
    cs.engine().push(print, reads=[x], writes=[y])
exe = g.instantiate()
for _ in range(3):
    exe.launch()
""",
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("ending", ["", "sys.exit(7)"])
def test_ctrl_c_at_exit_with_work_left_is_told_by_the_status(left, ending):
    code, printed = run_program(PREPARE + INTERRUPTED + LEFT[left] + f"\n{ending}")
    assert code == 120, printed
    (line,) = printed.splitlines()
    assert line.startswith("cudasync: left by Ctrl-C: ")
    assert "not begun" in line


def test_functions_at_exit_may_flush_stderr_behind_ctrl_c():
    """Only the end of the interpreter finds that it has failed."""
    flush = """
import atexit, logging
def last():
    logging.getLogger().error("last words")
    print("flushed", file=sys.stderr, flush=True)
# Functions at exit run in the reverse order.
atexit.unregister(fork_and_exit._close_all)
atexit.register(last)
atexit.register(fork_and_exit._close_all)
"""
    code, printed = run_program(
        "from cudasync.engine.lifecycle import fork_and_exit\n" + PREPARE + INTERRUPTED + flush
    )
    assert code == 120, printed
    assert printed.splitlines()[-2:] == ["last words", "flushed"]
