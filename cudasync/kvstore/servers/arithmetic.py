"""Floor 5. An optimizer on a server: NumPy, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.servers.update_tape import Tape

if TYPE_CHECKING:
    from cudasync.kvstore.optimizers import Optimizer

    Value = np.ndarray[Any, Any]
    State = dict[str, Value]


class Arithmetic:
    """The updates of one optimizer, by any number of threads, each on a key of its own."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._rules = optimizer.rules(np)
        # Tapes that no thread runs, by the weights' dtype.
        self._idle: dict[np.dtype[Any], list[Tape]] = {}

    def fresh(self, value: Value) -> State:
        """The state of a key before its first push."""
        made = {name: np.zeros_like(value) for name in self.optimizer.arrays}
        made.update({name: np.ones((), value.dtype) for name in self.optimizer.numbers})
        return made

    def update(self, weight: Value, gradient: Value, state: State) -> None:
        """Change `weight` and `state`, which are contiguous, in place; never raises half-way."""
        rate = np.asarray(self.optimizer.learning_rate, weight.dtype)
        with np.errstate(all="ignore"):
            if self.optimizer.is_elementwise:
                self._by_blocks(weight, gradient, state, rate)
                return
            # The temporaries of this update are as long as the key, so memory may run out.
            made = weight.copy(), {name: each.copy() for name, each in state.items()}
            self.optimizer.update(_On(self._rules, rate), made[0], gradient, made[1])
            weight[...] = made[0]
            for name, each in made[1].items():
                state[name][...] = each

    def _by_blocks(self, weight: Value, gradient: Value, state: State, rate: Value) -> None:
        idle = self._idle.setdefault(weight.dtype, [])
        try:
            tape = idle.pop()
        except IndexError:
            tape = Tape(self.optimizer, weight.dtype)
        tape.run(weight.reshape(-1), gradient.reshape(-1), state, rate)
        idle.append(tape)


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
