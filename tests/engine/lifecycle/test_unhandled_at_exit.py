"""Unseen failures at the end of a program or at a fork are reported on stderr, once."""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import run_program

FAIL = """
def fail():
    raise ValueError("planned")
x = cs.Var()
"""


def test_the_end_of_a_program_reports_each_failure_once_whose_engine_it_may_be():
    code, printed = run_program(
        FAIL
        + """
engines = [cs.engine(), cs.Engine(workers=1), cs.Engine("serial")]
for number, engine in enumerate(engines):
    engine.push(fail, writes=[x], name=f"op {number}")
    for _ in range(number):
        engine.push(lambda: None, reads=[x], writes=[x])
"""
    )
    assert code == 0
    assert printed.count("UnhandledFailureWarning") == 3
    for number in range(3):
        assert printed.count(f"op 'op {number}'") == 1
    assert "1 dependent ops failed with it" in printed
    assert "2 dependent ops failed with it" in printed
    assert "Exception ignored" not in printed


def test_the_end_of_a_program_finds_out_what_a_device_did():
    """No thread has asked the device, and a kernel has written to unallocated memory."""
    code, printed = run_program(
        """
module = cs.Module.from_ptx('''
    .version 7.0
    .target sm_75
    .address_size 64
    .visible .entry wild(.param .u64 out) {
        .reg .u64 %rd_out;
        ld.param.u64 %rd_out, [out];
        st.global.u32 [%rd_out + 1048576], 1;
        ret;
    }
''')
c = cs.zeros(4)
module.kernel("wild")[1, 1](c)
cs.copy(np.zeros(4, np.float32), c)
""",
        CUDASYNC_DEVICE="soft",
    )
    assert code == 0
    assert printed.count("UnhandledFailureWarning") == 1
    assert "op 'wild'" in printed
    assert "ILLEGAL_ADDRESS" in printed


def test_a_forked_child_leaves_the_failures_of_its_parent_to_it():
    code, printed = run_program(
        FAIL
        + """
warnings_of_fork = __import__("warnings")
warnings_of_fork.simplefilter("ignore", DeprecationWarning)
cs.engine().push(fail, name="parent's")
dropped = cs.Engine("serial")
dropped.push(fail, name="dropped")
faulthandler.cancel_dump_traceback_later()
child = os.fork()
if child == 0:
    del dropped
    gc.collect()
    cs.engine().push(fail, name="child's")
    sys.exit(0)
os.waitpid(child, 0)
"""
    )
    assert code == 0
    for name in ("parent's", "dropped", "child's"):
        assert printed.count(f"op {name!r}") == 1, printed


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ignore::RuntimeWarning", ""),
        ("error::cudasync.UnhandledFailureWarning", "cudasync.errors.UnhandledFailureWarning"),
    ],
)
def test_the_filter_is_that_of_any_warning(setting, words):
    category = setting.rpartition(".")[2].rpartition(":")[2]
    action = setting.partition(":")[0]
    kind = "cs.UnhandledFailureWarning" if words else category
    code, printed = run_program(
        f"import warnings\nwarnings.simplefilter({action!r}, {kind})\n{FAIL}"
        "cs.engine().push(fail, name='lost')\ncs.Engine('serial').push(fail, name='also')\n"
    )
    # Python's status for an error in the clean-up.
    assert code == (120 if action == "error" else 0)
    assert words in printed
    assert bool(printed) == bool(words)
    assert "OSError" not in printed


def test_an_exception_that_ends_the_program_does_not_hide_what_failed_before():
    code, printed = run_program(FAIL + "cs.engine().push(fail, name='lost')\nraise KeyError('end')")
    assert code == 1
    assert "KeyError: 'end'" in printed
    assert printed.count("op 'lost'") == 1


def test_daemon_threads_that_fail_ops_until_the_end_do_not_disturb_it():
    code, printed = run_program(
        FAIL
        + """
have_begun, engine = threading.Barrier(4), cs.engine()
def work():
    begun = False
    try:
        while True:
            engine.push(fail, name="of a daemon")
            engine.push(lambda: None).wait(PATIENCE_S)
            if not begun:
                begun = True
                have_begun.wait(PATIENCE_S)
    except cs.CudasyncError:
        pass
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
have_begun.wait(PATIENCE_S)
"""
    )
    assert code == 0
    assert printed.count("UnhandledFailureWarning") == 1
    assert "equal failures follow" in printed


def test_a_device_that_is_first_used_while_the_program_ends_is_there():
    """Until then the device's op waits for a host op. The op used to fail without a report."""
    code, printed = run_program(
        """
main, x = threading.main_thread(), cs.Var()
cs.engine().push(lambda: main.join(PATIENCE_S), writes=[x])
cs.engine().push(lambda stream: os.write(1, b"ran"), reads=[x], device=cs.Device(0))
"""
    )
    assert (code, printed) == (0, "ran")
