"""However a loop ends, no thread, process, shared memory or pinned buffer is left behind."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
from helpers.data import left_behind
from helpers.data.left_behind import nothing_left_behind
from helpers.data.sample_functions import fails_at
from helpers.repository.checkout import ROOT

from cudasync import data


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("end", ["break", "close", "error", "collected", "over"])
def test_nothing_is_left_behind(end, processes):
    fn = partial(fails_at, 30 if end == "error" else -1)
    with nothing_left_behind():
        pipeline = data.source(range(60 if end == "over" else 1000))
        pipeline = pipeline.map(fn, workers=2, processes=processes).batch(4).prefetch(2, device=0)
        try:
            for at, batch in enumerate(pipeline):  # noqa: B007 - it is dropped below
                assert left_behind.pinned()
                if at == 3 and end not in ("error", "over"):
                    break
            assert end != "error"
        except data.DataError:
            assert end == "error"
        del batch
        if end == "close":
            pipeline.close()
        if end == "collected":
            del pipeline
            gc.collect()


def test_the_check_sees_each_kind(monkeypatch):
    monkeypatch.setattr(left_behind, "PATIENCE_S", 0.0)
    pipeline = data.source(range(40)).map(partial(fails_at, -1), workers=1, processes=True)
    with pytest.raises(AssertionError) as caught, nothing_left_behind():  # noqa: PT012
        run = iter(pipeline.batch(4).prefetch(2, device=0))
        kept = [next(run), left_behind.blocks.SharedMemory(create=True, size=1)]
    for kind in ("threads", "processes", "pinned", "maps", "names"):
        assert f"'{kind}'" in str(caught.value)
    kept.pop().unlink()
    run.close()


PROGRAM = """
    import sys
    from functools import partial
    from pathlib import Path
    from helpers.data import left_behind
    from helpers.data.sample_functions import fails_at
    from cudasync import data

    if __name__ == "__main__":
        pipeline = data.source(range(10**9)).map(partial(fails_at, -1), workers=2, processes=True)
        for at, batch in enumerate(pipeline.batch(4).prefetch(2, device=0)):
            if at == 8:
                print(*left_behind.children(), flush=True)
                print(*left_behind.mapped_names(), flush=True)
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_interrupted_or_killed_leaves_nothing(kind, tmp_path):
    """Ctrl-C goes to all of the program's processes, as from a terminal."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        workers = [int(each) for each in process.stdout.readline().split()]
        names = process.stdout.readline().split()
        assert len(workers) == 2
        ends = [os.pidfd_open(each) for each in workers]
        if kind == signal.SIGINT:
            os.killpg(process.pid, kind)
        else:
            process.kill()
        _, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -kind
    for each in ends:
        # The descriptor is readable once the process has ended.
        assert select.select([each], [], [], 60)[0]
        os.close(each)
    assert not [name for name in names if Path("/dev/shm", name).exists()]
    if kind == signal.SIGINT:
        assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1, errors
