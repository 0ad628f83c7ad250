"""A program: Ctrl-C at the n-th point of a call, and a check of the engine after each.

    python -m helpers.concurrency.interrupt_program SCENE [--sample N | --at N ...]
    python -m helpers.concurrency.interrupt_program SCENE --timer TRIES
    python -m helpers.concurrency.interrupt_program SCENE --pairs [--sample N | --at N --again M]

Without `--sample` and `--at` every n is tried; with `--timer` a signal comes after random times.
With `--pairs`, a second Ctrl-C comes at each later point at which the first is handled.
The program prints a line for each failure, which replays it, and exits with 1 if there was one. A
call that hangs ends the program with exit code 3 and the stacks.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import traceback
from collections.abc import Sequence

from helpers.concurrency.interrupt_ground import KERNELS, Ground
from helpers.concurrency.interrupt_injector import Interrupter, Timer
from helpers.concurrency.interrupt_scenes import SCENES
from helpers.concurrency.thread_crew import stacks

import cudasync as cs
from cudasync.engine.host import awaited_pool

HANG_S = 15.0


class Watchdog:
    """Ends the process if a try takes too long, and prints what the process was doing."""

    def __init__(self) -> None:
        self.doing = ""
        self._tries = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, doing: str) -> None:
        with self._changed:
            self.doing = doing
            self._tries += 1
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                seen = self._tries
                if not self._changed.wait_for(lambda n=seen: self._tries != n, HANG_S) and seen:
                    sys.stderr.write(f"{self.doing}: hangs\n{stacks()}")
                    sys.stderr.flush()
                    os._exit(3)


# Interrupts inside a finaliser or a weak reference's callback: CPython can only report them.
lost: list[object] = []


def tell(unraisable: sys.UnraisableHookArgs) -> None:
    if unraisable.exc_type is KeyboardInterrupt:
        lost.append(unraisable.object)
    else:
        sys.__unraisablehook__(unraisable)


def attempt(scene: str, kernel: cs.Kernel, interrupter: Interrupter | Timer) -> None:
    """Play the scene once with an interrupt; raise if the engine was not intact afterwards."""
    ground = Ground(kernel)
    act = SCENES[scene](ground)
    got_through = False
    lost.clear()
    try:
        with interrupter:
            act()
    except KeyboardInterrupt:
        got_through = True
    ground.check(is_pair=getattr(interrupter, "again", None) is not None)
    if interrupter.place and not got_through and not lost:
        raise AssertionError("the interrupt was swallowed")


class Tries:
    """Plays interrupted scenes, and reports those that did not leave the engine intact."""

    def __init__(self) -> None:
        self.failures = 0
        self._kernel = cs.Module.from_file(KERNELS).kernel("mix")
        self._watchdog = Watchdog()

    def play(self, scene: str, interrupter: Interrupter | Timer, replay: str) -> None:
        self._watchdog.begin(replay)
        try:
            attempt(scene, self._kernel, interrupter)
        except BaseException as error:
            self.failures += 1
            said = traceback.format_exception_only(error)[-1].strip()
            sys.stderr.write(f"{replay} ({interrupter.place}): {said}\n")

    def at_points(self, scene: str, sample: int | None, at: list[int]) -> None:
        # The first play loads and caches what later plays find; the second play counts.
        for _ in range(2):
            counter = Interrupter(0)
            self.play(scene, counter, f"{scene} uninterrupted")
        chosen = at or list(range(1, counter.count + 1))
        if sample is not None:
            chosen = sorted(random.sample(chosen, min(sample, len(chosen))))
        for n in chosen:
            self.play(scene, Interrupter(n), f"{scene} --at {n}")

    def at_pairs(self, scene: str, sample: int | None, at: list[int], again: int) -> None:
        for _ in range(2):
            counter = Interrupter(0)
            self.play(scene, counter, f"{scene} uninterrupted")
        firsts = at or list(range(1, counter.count + 1))
        if sample is not None:
            firsts = sorted(random.sample(firsts, min(sample, len(firsts))))
        for n in firsts:
            counter = Interrupter(n, 0)
            self.play(scene, counter, f"{scene} --pairs --at {n} --again 0")
            seconds: Sequence[int] = range(1, counter.passed_again + 1)
            if again:
                seconds = range(again, again + 1)
            elif sample is not None:
                seconds = sorted(random.sample(seconds, min(2, len(seconds))))
            for m in seconds:
                replay = f"{scene} --pairs --at {n} --again {m}"
                self.play(scene, Interrupter(n, m), replay)

    def at_times(self, scene: str, tries: int) -> None:
        for _ in range(tries):
            # From a microsecond to some milliseconds; each magnitude is equally likely.
            delay_s = 10 ** random.uniform(-6, -2.3)
            self.play(scene, Timer(delay_s), f"{scene} --timer, {delay_s * 1e6:.0f} us")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scene", choices=[*SCENES, "all"])
    parser.add_argument("--sample", type=int)
    parser.add_argument("--at", type=int, nargs="+", default=[])
    parser.add_argument("--timer", type=int)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--again", type=int, default=0)
    options = parser.parse_args()
    sys.unraisablehook = tell
    # However slow a traced push is, its wait counts as soon.
    awaited_pool.SOON_S = float("inf")
    tries = Tries()
    for scene in SCENES if options.scene == "all" else [options.scene]:
        if options.timer is not None:
            tries.at_times(scene, options.timer)
        elif options.pairs:
            tries.at_pairs(scene, options.sample, options.at, options.again)
        else:
            tries.at_points(scene, options.sample, options.at)
    return 1 if tries.failures else 0


if __name__ == "__main__":
    sys.exit(main())
