"""Floor 5. An optimizer on a server: NumPy, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.servers.update_tape import Tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.optimizers import Optimizer

    Value = np.ndarray[Any, Any]
    State = dict[str, Value]


class Arithmetic:
    """The updates of one optimizer, one at a time."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._rules = optimizer.rules(np)
        # By the weights' dtype.
        self._tapes: dict[np.dtype[Any], Tape] = {}

    def fresh(self, value: Value) -> State:
        """The state of a key before its first push."""
        made = {name: np.zeros_like(value) for name in self.optimizer.arrays}
        made.update({name: np.ones((), value.dtype) for name in self.optimizer.numbers})
        return made

    def prepared(self, weight: Value, gradient: Value, state: State) -> Callable[[], None]:
        """A function that changes `weight` and `state`, which are contiguous, and never raises.

        TypeError for a dtype that this optimizer cannot update; MemoryError. Nothing has changed
        then. It is called before the next update is prepared.
        """
        rate = np.asarray(self.optimizer.learning_rate, weight.dtype)
        with np.errstate(all="ignore"):
            if self.optimizer.is_elementwise:
                return self._by_blocks(weight, gradient, state, rate)
            # The temporaries of this update are as long as the key, so memory may run out.
            made = weight.copy(), {name: each.copy() for name, each in state.items()}
            self.optimizer.update(_On(self._rules, rate), made[0], gradient, made[1])

        def take() -> None:
            weight[...] = made[0]
            for name, each in made[1].items():
                state[name][...] = each

        return take

    def _by_blocks(
        self, weight: Value, gradient: Value, state: State, rate: Value
    ) -> Callable[[], None]:
        tape = self._tapes.get(weight.dtype)
        if tape is None:
            try:
                tape = self._tapes[weight.dtype] = Tape(self.optimizer, weight.dtype)
            except TypeError as error:
                name = self.optimizer.name
                raise TypeError(f"{name} cannot update {weight.dtype}: {error}") from None
        flat = weight.reshape(-1), gradient.reshape(-1)

        def run() -> None:
            with np.errstate(all="ignore"):
                tape.run(*flat, state, rate)

        return run


class _On:
    """The arithmetic of an optimizer's `update`."""

    def __init__(self, rules: dict[str, Any], rate: Value) -> None:
        self._rules = rules
        self.rate = rate

    def __call__(self, rule: str, out: Value | None, *arrays: Value) -> Any:
        made = self._rules[rule](*arrays)
        if out is None:
            return made
        out[...] = made
        return out

    def total(self, x: Value) -> Any:
        return np.sum(x)
