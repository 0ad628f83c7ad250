"""A program: explore every model of some files and print each result as a line of JSON.

Run it under `frontrun`. The explorer sees shared state by attribute names and cannot look through
`__slots__`. So the library is loaded without slots here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

import frontrun  # noqa: E402
from helpers.concurrency.model_checking import Explored, Length, Model, models_of  # noqa: E402

# A run of this size takes milliseconds; a run that takes this long hangs.
HANGS_S = 20.0
# So many orders show most planted bugs, and twice as many schedules by chance show most others.
SOON = 12
# Longer than any run of a model, in bytecodes.
MOST_STEPS = 20_000


class _RawLock:
    """`_thread.allocate_lock`, rebuilt from a semaphore, which the explorer knows how to wait for.

    `threading.Lock` does not fit: the explorer calls a thread deadlocked that waits for a lock of
    its own, but any thread may release this lock.
    """

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(1)
        # Written at each change and read at each look: the explorer does not see the look at the
        # semaphore itself, and would try only one order of look and change.
        self.changes = 0

    def acquire(self, timeout: float = -1) -> bool:
        is_acquired = self._free.acquire(timeout=None if timeout < 0 else timeout)
        self.changes = 1
        return is_acquired

    def release(self) -> None:
        self.changes = 1
        try:
            self._free.release()
        except ValueError:
            raise RuntimeError("release unlocked lock") from None

    def locked(self) -> bool:
        free: Any = self._free
        return self.changes >= 0 and free._value == 0


class _NoSlots(ast.NodeTransformer):
    """Removes `__slots__ = ...` and `slots=True` from a program."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == "__slots__":
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg in ("slots", "weakref_slot"):
            return ast.copy_location(ast.keyword(node.arg, ast.Constant(False)), node)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        # Not from the bytecode cache, which still has the slots.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = ast.fix_missing_locations(_NoSlots().visit(ast.parse(data)))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "cudasync":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def explore(name: str, model: type[Model], length: Length) -> Explored:
    began = time.monotonic()
    count = len(model().workers())
    common: dict[str, Any] = {
        "setup": model,
        "workers": [partial(_work, index=index) for index in range(count)],
        "invariant": _holds,
        "detect_io": False,
        "reproduce_on_failure": 0,
        "timeout_per_run": HANGS_S,
        "deadlock_timeout": HANGS_S,
        # A deadlock is then seen at once, not by a timeout.
        "clock": "virtual",
    }

    def in_order(bound: int | None, most: int) -> Any:
        # If not all orders can be tried, do not try only those that differ at the end.
        return frontrun.explore(
            **common,
            strategy="dpor",
            preemption_bound=bound,
            max_executions=most,
            search="bit-reversal",
        )

    def by_chance(attempts: int) -> Any:
        return frontrun.explore(
            **common, strategy="random", max_attempts=attempts, max_ops=MOST_STEPS, seed=1
        )

    if model.planted:
        # Most bugs show soon, with one preemption (Musuvathi and Qadeer 2007) or in any order. Most
        # others show by chance.
        most = max(length, Length.USUAL, key=list(Length).index).of(model.most)
        searches = [
            partial(in_order, 1, SOON),
            partial(in_order, None, SOON),
            partial(by_chance, 2 * SOON),
            partial(in_order, None, most),
            partial(by_chance, model.drawn * 20),
        ]
    else:
        most = length.of(model.most)
        searches = [partial(in_order, None, most), partial(by_chance, length.of(model.drawn))]
    counts, counterexample, is_complete = Counter[Any](), None, False
    for search in searches:
        found = search()
        counts[search.func] += found.num_explored
        if found.property_holds is False or (search.func is in_order and not found.property_holds):
            said = getattr(found, "inconclusive_reason", None)
            counterexample = found.explanation or f"no explanation: {said}"
            break
        is_complete |= search.args[:1] == (None,) and found.num_explored < search.args[1]
    return Explored(
        name=name,
        counterexample=counterexample,
        interleavings=counts[in_order],
        is_complete=is_complete and counterexample is None,
        drawn=counts[by_chance],
        seconds=time.monotonic() - began,
    )


def _work(model: Model, index: int) -> None:
    try:
        model.workers()[index]()
    except Exception as error:
        if type(error).__module__.startswith("frontrun"):
            # The explorer ends a run by this exception.
            raise
        model.raised.append("".join(traceback.format_exception(error)))


def _holds(model: Model) -> bool:
    try:
        assert not model.raised, model.raised[0]
        return model.holds()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError("".join(traceback.format_exception(error))) from error


def main(length: str, *words: str) -> None:
    """Explore the models of the files among the words, or only those that other words name."""
    sys.meta_path.insert(0, _Finder())
    atomic = importlib.import_module("cudasync.atomic")
    atomic.allocate_lock = _RawLock  # type: ignore[attr-defined]
    files = [Path(word) for word in words if word.endswith(".py")]
    only = [word for word in words if not word.endswith(".py")]
    for path in files:
        for name, model in models_of(path).items():
            if not only or name in only:
                print(json.dumps(asdict(explore(name, model, Length(length)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
