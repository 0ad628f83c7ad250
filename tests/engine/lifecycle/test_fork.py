"""A forked child: it does not hang, and the parent does not notice it.

In the child, the parent's ops end in an error at once, and a new engine works.
"""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import assert_runs_clean

# `in_child(fn)` forks. The child calls fn and ends through the interpreter, so that its exit
# handlers run. The parent gets the exit code.
PREPARE = """
import warnings
# The watchdog that tells stacks is a thread, which would be missed by the child; a signal is not.
faulthandler.cancel_dump_traceback_later()
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(int(PATIENCE_S))
warnings.simplefilter("ignore")
def in_child(fn):
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_S / 2))
        fn()
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        # At once: the ops that wait for the gate would keep the end of this program.
        os._exit(code % 256)
def refused(call, *arguments):
    try:
        call(*arguments)
    except cs.CudasyncError as error:
        return error
    raise AssertionError(f"{call} of the parent worked in the child")
gate, x, y = threading.Event(), cs.Var("x"), cs.Var("y")
engine = cs.Engine(workers=2)
"""


def test_a_child_gets_an_error_for_the_engine_of_its_parent_and_may_make_its_own():
    assert_runs_clean(
        PREPARE
        + """
running = engine.push(gate.wait, writes=[x])
queued = engine.push(lambda: "ran", reads=[x])
finished = engine.push(lambda: "kept")
finished.wait()
def child():
    refused(engine.push, print)
    for op in (running, queued):
        for wait in (op.wait, op.result, lambda: op.wait(1.0)):
            assert isinstance(refused(wait), (cs.OpError, cs.ClosedError))
        assert op.done()
    assert finished.result() == "kept"
    engine.close()
    fresh = cs.engine()
    assert fresh is not engine and fresh.push(lambda: 42).result(PATIENCE_S) == 42
    with cs.Engine(workers=2) as own:
        z = cs.Var("z")
        ops = [own.push(lambda i=i: i, reads=[z], writes=[z]) for i in range(200)]
        assert [op.result(PATIENCE_S) for op in ops] == list(range(200))
in_child(child)
gate.set()
assert running.result(PATIENCE_S) is True and queued.result(PATIENCE_S) == "ran"
assert engine.push(lambda: "on").result(PATIENCE_S) == "on"
engine.waitall(PATIENCE_S)
engine.close()
"""
    )


def test_variables_of_the_parent_are_usable_in_the_child():
    """The child reports that the parent's writes are lost. An overwrite heals the data."""
    assert_runs_clean(
        PREPARE
        + """
engine.push(gate.wait, writes=[x])
engine.push(lambda: None, reads=[x], writes=[y])
data = np.zeros(8)
engine.push(gate.wait, writes=[data])
def child():
    with cs.Engine(workers=1) as own:
        for thing in (x, y, data):
            poisoned = own.push(lambda: None, reads=[thing])
            assert poisoned.exception(PATIENCE_S) is not None
            own.push(lambda: None, writes=[thing]).wait(PATIENCE_S)
            own.push(lambda: None, reads=[thing]).wait(PATIENCE_S)
        own.clear_errors()
in_child(child)
gate.set()
engine.waitall(PATIENCE_S)
y.wait(PATIENCE_S)
"""
    )


@pytest.mark.slow
def test_the_engine_that_is_current_at_the_fork_is_not_used_by_the_child():
    assert_runs_clean(
        PREPARE
        + """
with engine:
    engine.push(gate.wait)
    def child():
        own = cs.engine()
        if own is engine:
            # Then every use of it says what is the matter.
            refused(own.push, print)
        else:
            assert own.push(lambda: 1).result(PATIENCE_S) == 1
    in_child(child)
    gate.set()
"""
    )


@pytest.mark.slow
def test_a_child_of_an_idle_parent_works_and_ends():
    assert_runs_clean(
        PREPARE
        + """
engine.push(lambda: None).wait()
cs.engine().push(lambda: None).wait()
in_child(lambda: None)
in_child(lambda: cs.engine().push(lambda: None).wait(PATIENCE_S))
def grandchild():
    cs.engine().push(lambda: None).wait(PATIENCE_S)
    in_child(lambda: cs.engine().push(lambda: None).wait(PATIENCE_S))
in_child(grandchild)
assert engine.push(lambda: 1).result(PATIENCE_S) == 1
"""
    )


@pytest.mark.parametrize("forks", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_fork_in_the_middle_of_others_pushes_leaves_a_child_that_works(forks):
    """In the child, the other threads no longer exist to finish their pushes."""
    assert_runs_clean(
        PREPARE
        + f"""
sys.setswitchinterval(1e-5)
is_over = threading.Event()
count, errors = [0, 0, 0], []
def push(thread, variables):
    try:
        while not is_over.is_set():
            op = engine.push(lambda: None, writes=variables)
            count[thread] += 1
            if count[thread] % 10 == 0:
                op.wait(PATIENCE_S)
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=push, args=pair) for pair in enumerate(([x, y], [y, x], [x]))]
for thread in threads:
    thread.start()
def child():
    refused(engine.push, print)
    own = cs.Engine(workers=2)
    z = cs.Var("z")
    for _ in range(10):
        own.push(lambda: None, reads=[z], writes=[z])
    own.push(lambda: None, writes=[x, y]).wait(PATIENCE_S)
    own.push(lambda: "ran", reads=[x, z]).wait(PATIENCE_S)
    own.close()
for _ in range({forks}):
    in_child(child)
is_over.set()
for thread in threads:
    thread.join(PATIENCE_S)
assert not errors, errors
assert min(count) > 0
engine.waitall(PATIENCE_S)
assert engine.push(lambda: 1).result(PATIENCE_S) == 1
engine.close()
""",
        deadline_s=120 if forks > 20 else 30,
    )


@pytest.mark.slow
def test_an_op_may_fork():
    assert_runs_clean(
        PREPARE
        + """
def outer():
    child = os.fork()
    if child == 0:
        os._exit(cs.Engine(workers=1).push(lambda: 5).result(PATIENCE_S))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert engine.push(outer).result(PATIENCE_S) == 5
assert engine.push(lambda: "on").result(PATIENCE_S) == "on"
"""
    )


def test_processes_of_multiprocessing_work_with_engines_of_their_own():
    assert_runs_clean(
        PREPARE
        + """
import multiprocessing
def work(index):
    with cs.Engine(workers=2) as own:
        ops = [own.push(lambda i=i: i * index) for i in range(50)]
        return sum(op.result(PATIENCE_S) for op in ops)
held = engine.push(gate.wait)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, range(6)) == [1225 * i for i in range(6)]
gate.set()
engine.waitall(PATIENCE_S)
"""
    )


@pytest.mark.slow
def test_ops_may_use_a_pool_of_processes():
    assert_runs_clean(
        PREPARE
        + """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
    ops = [engine.push(lambda i=i: pool.submit(pow, i, 2).result(PATIENCE_S)) for i in range(8)]
    assert [op.result(PATIENCE_S) for op in ops] == [i * i for i in range(8)]
engine.close()
"""
    )


def test_arrays_of_the_parent_are_refused_or_gone_in_the_child_and_whole_in_the_parent():
    """A CUDA context does not survive a fork. The child gets an error, not a hang or crash."""
    assert_runs_clean(
        PREPARE
        + """
with engine:
    array = cs.array(np.arange(100))
    engine.push(gate.wait, reads=[array])
    def child():
        try:
            array.numpy()
        except cs.CudasyncError:
            pass
    in_child(child)
    gate.set()
    assert array.numpy().tolist() == list(range(100))
    cs.zeros(4).wait()
"""
    )
