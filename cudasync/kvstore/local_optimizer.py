"""Floor 5. An optimizer in a process: each of its rules is one kernel, or one host op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array.fused.function import Elementwise

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.optimizers import Optimizer


class Updater:
    """An optimizer with the state of every key, which is made at the key's first push."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Key, dict[str, Array]] = {}
        self._rules = {name: Elementwise(rule) for name, rule in optimizer.rules(xp).items()}

    def __repr__(self) -> str:
        return repr(self.optimizer)

    def __call__(self, key: Key, gradient: Array, weight: Array) -> None:
        """Push ops that change the weight and its state."""
        if key not in self.states:
            self.states[key] = self.fresh(weight)
        _Arithmetic(self._rules, self.optimizer, weight).update(gradient, self.states[key])

    def fresh(self, weight: Array) -> dict[str, Array]:
        """The state before the first step."""
        made = {name: xp.zeros_like(weight) for name in self.optimizer.arrays}
        for name in self.optimizer.numbers:
            made[name] = xp.ones((), dtype=weight.dtype, device=weight.device)
        return made


class _Arithmetic:
    """The arithmetic of an optimizer's `update`, for one weight."""

    def __init__(self, rules: dict[str, Elementwise], optimizer: Optimizer, weight: Array) -> None:
        self._rules = rules
        self._optimizer = optimizer
        self._weight = weight
        # An array, so that a new rate compiles no new kernel.
        self.rate = xp.full((), optimizer.learning_rate, dtype=weight.dtype, device=weight.device)

    def update(self, gradient: Array, state: dict[str, Array]) -> None:
        self._optimizer.update(self, self._weight, gradient, state)

    def __call__(self, rule: str, out: Array | None, *arrays: Array) -> Any:
        return self._rules[rule](*arrays, out=out)

    def total(self, x: Array) -> Any:
        return xp.sum(x)
