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


# `fork_here` forks where it is called. An op's function must not return in the child, and an
# exception would be the op's.
PLACES = """
import traceback
def fork_here():
    def run():
        try:
            child()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    in_child(run)
def child():
    own = cs.engine()
    assert not own.is_closed and own is not engine
    assert cs.engine() is own
    z = cs.Var("z")
    ops = [own.push(lambda i=i: i, reads=[z], writes=[z]) for i in range(50)]
    assert [op.result(PATIENCE_S) for op in ops] == list(range(50))
    with cs.Engine(workers=1) as inner:
        assert cs.engine() is inner
        # Else a worker would wait for a permit of the parent's pool.
        assert inner.push(lambda: inner.push(lambda: 7).result(PATIENCE_S)).result(PATIENCE_S) == 7
    assert cs.engine() is own
def callback(engine):
    called = threading.Event()
    engine.push(lambda: None).add_done_callback(lambda: (fork_here(), called.set()))
    assert called.wait(PATIENCE_S)
def run_by_a_waiter(engine):
    threads = set()
    with cs.graph() as g:
        cs.engine().push(lambda: threads.add(threading.get_ident()), writes=[x])
    exe = g.instantiate()
    while threading.get_ident() not in threads:
        exe.launch().wait()
    with cs.graph() as g:
        cs.engine().push(lambda: todo(), writes=[x])
    exe, todo = g.instantiate(), lambda: None
    exe.launch().wait()
    todo = fork_here
    exe.launch().wait()
def nested(engine):
    with engine, cs.use(cs.Engine("serial")), cs.graph() as g:
        fork_here()
"""


@pytest.mark.parametrize(
    "place",
    [
        "engine.push(fork_here).result(PATIENCE_S)",
        "engine.push(lambda stream: fork_here(), device=0).result(PATIENCE_S)",
        "callback(engine)",
        "with engine: run_by_a_waiter(engine)",
        "with cs.Engine('serial') as engine: engine.push(fork_here)",
        "with engine: fork_here()",
        "with cs.use(engine): fork_here()",
        "nested(engine)",
    ],
)
def test_wherever_a_process_forks_the_child_has_a_working_engine_of_its_own(place):
    """In an op, a callback, a recording, a `with` block: the thread goes on as the child's only."""
    assert_runs_clean(PREPARE + PLACES + place)


def test_blocks_that_a_child_leaves_lead_to_no_engine_of_the_parent():
    assert_runs_clean(
        PREPARE
        + """
def leave(child):
    if child == 0:
        assert cs.engine() not in (engine, other), "left a block"
        assert cs.engine().push(lambda: 1).result(PATIENCE_S) == 1
pids = []
with engine:
    with cs.use(other := cs.Engine("serial")):
        with cs.graph() as g:
            cs.engine().push(lambda: None)
            recorder = cs.engine()
            pids.append(os.fork())
            leave(pids[-1])
        leave(pids[-1])
    leave(pids[-1])
leave(pids[-1])
if pids[-1] == 0:
    # It is the program up to the fork.
    for call in (g.instantiate, lambda: recorder.push(lambda: None)):
        assert isinstance(refused(call), cs.RecordingError)
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(pids[-1], 0)[1]) == 5
assert len(g) == 1
g.instantiate()
other.close()
"""
    )


def test_a_child_whose_op_returns_ends():
    """Its thread is a worker without a pool: behind the op it has nothing to do."""
    assert_runs_clean(
        PREPARE
        + """
def outer():
    child = os.fork()
    if child == 0:
        return None
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert engine.push(outer).result(PATIENCE_S) == 0
assert engine.push(lambda: "on").result(PATIENCE_S) == "on"
"""
    )


def test_a_child_that_is_forked_while_a_thread_compiles_gets_an_error_and_does_not_hang():
    """NVRTC's own locks stay taken in the child."""
    assert_runs_clean(
        PREPARE
        + """
from cudasync.driver.compiler import nvrtc
from cudasync.driver.compiler.compilation import compile_cuda
os.environ["CUDASYNC_SOFTGPU_CACHE"] = "0"
SOURCE = 'extern "C" __global__ void scale(float *x) { x[0] = sinf(x[0]) + NUMBER; }'
def compile_one(number):
    return compile_cuda(SOURCE.replace("NUMBER", str(number)), architecture=(9, 0)).ptx
def compile_all():
    number = 0
    while not is_over.is_set():
        compile_one(number)
        number += 1
def child():
    try:
        compile_one(-1)
    except cs.CudasyncError as error:
        assert "spawn" in str(error), error
        sys.exit(0)
    assert not nvrtc._is_stuck
is_over = threading.Event()
thread = threading.Thread(target=compile_all)
thread.start()
caught = 0
while caught < 3:
    while not nvrtc._calls:
        pass
    # It may be over by now.
    is_caught = bool(nvrtc._calls)
    in_child(child)
    caught += is_caught
is_over.set()
thread.join()
assert "scale" in compile_one(-1)
"""
    )
