"""A program: some random programs under each of many schedules, each in its own process.

A process has one schedule for its whole life, so each is forked before it chooses its driver. The
forked process already has the slow imports. The last line names the seeds that failed, and the
lines before it say how to replay them.
"""

from __future__ import annotations

import os
import sys
import traceback

from helpers.engine_programs.device_faults import differences_after_fault
from helpers.engine_programs.fault_programs import computing_faults, crossing_programs
from helpers.engine_programs.judge import differences, replay_line
from helpers.engine_programs.steps import Wild
from helpers.engine_programs.strategies import mixed_programs, programs
from helpers.engine_programs.strategies import settings as engine_settings
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

PROGRAMS = 12
few = settings(
    max_examples=PROGRAMS,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
any_programs = st.one_of(
    programs(),
    programs(fails=True),
    programs(threads=2),
    programs(threads=3, fails=True),
    mixed_programs(fails=True),
    crossing_programs(),
    computing_faults(),
)


def look(number: int) -> int:
    """Run some programs under `seed=number`; return how many go wrong."""
    os.environ["CUDASYNC_SOFTGPU_SCHEDULER"] = f"seed={number}"
    found: list[str] = []

    @seed(number)
    @few
    @given(any_programs, engine_settings())
    def run(program, setting) -> None:
        loses_device = any(isinstance(push.step, Wild) for push in program.pushes)
        wrong = (differences_after_fault if loses_device else differences)(program, setting)
        if wrong:
            found.extend([*wrong, replay_line(program, setting)])

    run()
    print(*found, sep="\n", end="\n" * bool(found), flush=True)
    return len(found)


def main(first: int, end: int) -> int:
    failed = []
    for number in range(first, end):
        child = os.fork()
        if not child:
            status = 1
            try:
                status = int(look(number) > 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        if os.waitpid(child, 0)[1]:
            failed.append(number)
    print(f"{end - first} seeds, {PROGRAMS} programs each; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
