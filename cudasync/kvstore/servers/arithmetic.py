"""Floor 5. An optimizer on a server: NumPy, in place, in blocks that stay in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cudasync.kvstore.optimizers import Optimizer

    Value = np.ndarray[Any, Any]
    State = dict[str, Value]

# Elements in a block: the few temporaries of a rule fit in a core's own cache.
_BLOCK = 1 << 15


class Arithmetic:
    """The updates of one optimizer, by any number of threads, each on a key of its own."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._rules = optimizer.rules(np)

    def fresh(self, value: Value) -> State:
        """The state of a key before its first push."""
        made = {name: np.zeros_like(value) for name in self.optimizer.arrays}
        made.update({name: np.ones((), value.dtype) for name in self.optimizer.numbers})
        return made

    def update(self, weight: Value, gradient: Value, state: State) -> None:
        """Change `weight` and `state`, which are contiguous, in place; never raises half-way.

        Blocks give the same bits as whole arrays, because no block depends on another block.
        """
        with np.errstate(all="ignore"):
            if self.optimizer.is_elementwise:
                self._by_blocks(weight, gradient, state)
                return
            # The temporaries of this update are as long as the key, so memory may run out.
            made = weight.copy(), {name: each.copy() for name, each in state.items()}
            self._whole(made[0], gradient, made[1])
            weight[...] = made[0]
            for name, each in made[1].items():
                state[name][...] = each

    def _whole(self, weight: Value, gradient: Value, state: State) -> None:
        rate = np.asarray(self.optimizer.learning_rate, weight.dtype)
        self.optimizer.update(_On(self._rules, rate), weight, gradient, state)

    def _by_blocks(self, weight: Value, gradient: Value, state: State) -> None:
        flat, given = weight.reshape(-1), gradient.reshape(-1)
        arrays = {name: state[name].reshape(-1) for name in self.optimizer.arrays}
        numbers = {name: state[name] for name in self.optimizer.numbers}
        after = numbers
        for start in range(0, flat.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            # Every block begins with the numbers of before the update.
            after = {name: each.copy() for name, each in numbers.items()}
            held = {name: each[part] for name, each in arrays.items()}
            self._whole(flat[part], given[part], {**held, **after})
        for name, each in after.items():
            numbers[name][...] = each


class _On:
    """The arithmetic of an optimizer's `update`."""

    def __init__(self, rules: dict[str, Any], rate: Value) -> None:
        self._rules = rules
        self.rate = rate

    def __call__(self, rule: str, out: Value | None, *arrays: Value) -> Any:
        made = self._rules[rule](*arrays)
        if out is not None:
            out[...] = made
        return made

    def total(self, x: Value) -> Any:
        return np.sum(x)
