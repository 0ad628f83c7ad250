"""Floor 5. Optimizers, written once: over `xp` for stores in a process, over NumPy for servers.

An optimizer is its name and its settings; nothing else is ever sent. `rules(xp)` gives the
formulas, each elementwise. `update` applies them in order and in place, through the arithmetic in
its arguments. A step is a fixed sequence of operations, so its bits are the same each time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    State = dict[str, Any]


class Optimizer:
    """A way to change a weight by a gradient: `name`, `settings`, and the state of a key.

    All optimizers take `learning_rate`, `weight_decay`, `rescale` and `clip`. `weight_decay *
    weight` is added to the gradient, `rescale` is a factor of every gradient, and `clip` is a bound
    of the rescaled gradient, or None.
    """

    name: ClassVar[str]
    defaults: ClassVar[dict[str, float]]
    # The state of a key beside its weight: arrays of its shape, and numbers.
    arrays: tuple[str, ...] = ()
    numbers: ClassVar[tuple[str, ...]] = ()
    # Whether each element depends on this element alone, so that a key may be updated in parts.
    is_elementwise = True

    def __init__(self, **settings: Any) -> None:
        known = {"weight_decay": 0.0, "rescale": 1.0, "clip": None, **self.defaults}
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise TypeError(
                f"{self.name} has no setting {', '.join(unknown)}: it takes {', '.join(known)}"
            )
        self.settings: dict[str, float | None] = dict(known)
        for key, value in settings.items():
            if key == "clip" and value is None:
                continue
            if not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{key} of {self.name} is a number, not {value!r}")
            number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"{key} of {self.name} is a finite number, not {value}")
            self.settings[key] = number

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __repr__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"<Optimizer {self.name} {told}>"

    def rules(self, xp: Any) -> dict[str, Callable[..., Any]]:
        """The formulas by name, over this namespace: the optimizer's own, and `gradient`."""
        rescale, decay, clip = self.rescale, self.weight_decay, self.clip

        def gradient(g: Any, w: Any) -> Any:
            return clipped(xp, g * rescale, clip) + w * decay

        return {"gradient": gradient}

    def update(self, on: Any, weight: Any, gradient: Any, state: State) -> None:
        """Change `weight` and `state` in place; `on(rule, out, *arrays)` computes a rule."""
        raise NotImplementedError

    def prepared(self, on: Any, weight: Any, gradient: Any) -> Any:
        """The gradient with scale, bound and decay; the gradient itself without these settings."""
        if self.rescale == 1.0 and self.clip is None and not self.weight_decay:
            return gradient
        return on("gradient", None, gradient, weight)


class SGD(Optimizer):
    """w += m, where m = momentum * m - learning_rate * g; without momentum no m is kept."""

    name = "sgd"
    defaults: ClassVar = {"learning_rate": 0.01, "momentum": 0.0}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.momentum:
            self.arrays = ("momentum",)

    def rules(self, xp: Any) -> dict[str, Callable[..., Any]]:
        """As `Optimizer.rules`."""
        keep = self.momentum

        def momentum(m: Any, g: Any, rate: Any) -> Any:
            return m * keep - g * rate

        def weight(w: Any, m: Any) -> Any:
            return w + m

        def plain(w: Any, g: Any, rate: Any) -> Any:
            return w - g * rate

        own = (momentum, weight, plain)
        return {**super().rules(xp), **{rule.__name__: rule for rule in own}}

    def update(self, on: Any, weight: Any, gradient: Any, state: State) -> None:
        """As `Optimizer.update`."""
        g = self.prepared(on, weight, gradient)
        if not self.momentum:
            on("plain", weight, weight, g, on.rate)
            return
        on("momentum", state["momentum"], state["momentum"], g, on.rate)
        on("weight", weight, weight, state["momentum"])


class AdaGrad(Optimizer):
    """h += g * g, then w -= learning_rate * g / (sqrt(h) + epsilon)."""

    name = "adagrad"
    defaults: ClassVar = {"learning_rate": 0.01, "epsilon": 1e-7}
    arrays = ("history",)

    def rules(self, xp: Any) -> dict[str, Callable[..., Any]]:
        """As `Optimizer.rules`."""
        epsilon = self.epsilon

        def history(h: Any, g: Any) -> Any:
            return h + g * g

        def weight(w: Any, g: Any, h: Any, rate: Any) -> Any:
            return w - g * rate / (xp.sqrt(h) + epsilon)

        return {**super().rules(xp), "history": history, "weight": weight}

    def update(self, on: Any, weight: Any, gradient: Any, state: State) -> None:
        """As `Optimizer.update`."""
        g = self.prepared(on, weight, gradient)
        on("history", state["history"], state["history"], g)
        on("weight", weight, weight, g, state["history"], on.rate)


class Adam(Optimizer):
    """Adam with both moments corrected for their start at zero (Kingma and Ba, 2015)."""

    name = "adam"
    defaults: ClassVar = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    arrays = ("mean", "variance")
    # beta1 and beta2 to the power of the number of steps.
    numbers = ("power1", "power2")

    def rules(self, xp: Any) -> dict[str, Callable[..., Any]]:
        """As `Optimizer.rules`."""
        beta1, beta2, epsilon = self.beta1, self.beta2, self.epsilon

        def mean(m: Any, g: Any) -> Any:
            return m * beta1 + g * (1 - beta1)

        def variance(v: Any, g: Any) -> Any:
            return v * beta2 + g * g * (1 - beta2)

        def power1(p: Any) -> Any:
            return p * beta1

        def power2(p: Any) -> Any:
            return p * beta2

        def direction(m: Any, v: Any, p1: Any, p2: Any) -> Any:
            return m / (1 - p1) / (xp.sqrt(v / (1 - p2)) + epsilon)

        def weight(w: Any, d: Any, rate: Any) -> Any:
            return w - d * rate

        own = (mean, variance, power1, power2, direction, weight)
        return {**super().rules(xp), **{rule.__name__: rule for rule in own}}

    def moved(self, on: Any, gradient: Any, state: State) -> Any:
        """The direction of this step, after updating the moments by the gradient."""
        for name in ("mean", "variance"):
            on(name, state[name], state[name], gradient)
        for name in self.numbers:
            on(name, state[name], state[name])
        parts = (state[name] for name in ("mean", "variance", "power1", "power2"))
        return on("direction", None, *parts)

    def update(self, on: Any, weight: Any, gradient: Any, state: State) -> None:
        """As `Optimizer.update`."""
        moved = self.moved(on, self.prepared(on, weight, gradient), state)
        on("weight", weight, weight, moved, on.rate)


class LAMB(Adam):
    """Adam's direction plus decay, scaled to the weight's length (You et al., 2020).

    The decay is no part of the gradient here. The factor is |w| / |direction|, and 1 if either is
    0.
    """

    name = "lamb"
    # The factor depends on all elements.
    is_elementwise = False
    defaults: ClassVar = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}

    def rules(self, xp: Any) -> dict[str, Callable[..., Any]]:
        """As `Optimizer.rules`."""
        decay, rescale, clip = self.weight_decay, self.rescale, self.clip

        def gradient(g: Any) -> Any:
            return clipped(xp, g * rescale, clip)

        def decayed(d: Any, w: Any) -> Any:
            return d + w * decay

        def square(x: Any) -> Any:
            return x * x

        def factor(w: Any, d: Any) -> Any:
            given = xp.sqrt(w / xp.where(d > 0, d, 1.0))
            return xp.where((w > 0) & (d > 0), given, 1.0)

        def weight(w: Any, d: Any, f: Any, rate: Any) -> Any:
            return w - d * (f * rate)

        own = (gradient, decayed, square, factor, weight)
        return {**super().rules(xp), **{rule.__name__: rule for rule in own}}

    def update(self, on: Any, weight: Any, gradient: Any, state: State) -> None:
        """As `Optimizer.update`."""
        g = gradient
        if self.rescale != 1.0 or self.clip is not None:
            g = on("gradient", None, gradient)
        d = on("decayed", None, self.moved(on, g, state), weight)
        lengths = [on.total(on("square", None, x)) for x in (weight, d)]
        on("weight", weight, weight, d, on("factor", None, *lengths), on.rate)


def clipped(xp: Any, x: Any, bound: float | None) -> Any:
    """`x` clipped to plus and minus `bound`; `x` itself for None."""
    return x if bound is None else xp.clip(x, -bound, bound)


KNOWN: dict[str, type[Optimizer]] = {each.name: each for each in (SGD, Adam, AdaGrad, LAMB)}


def optimizer(given: Any, settings: dict[str, Any]) -> Optimizer:
    """The optimizer of a name (in any case) with these settings; an Optimizer is returned as is."""
    if isinstance(given, Optimizer):
        if settings:
            raise TypeError(
                "an optimizer object has its own settings: give settings only with "
                "an optimizer's name"
            )
        return given
    if not isinstance(given, str):
        raise TypeError(f"the optimizer must be a name or an Optimizer, not {type(given).__name__}")
    if given.lower() not in KNOWN:
        raise ValueError(f"there is no optimizer {given!r}: choose from {', '.join(KNOWN)}")
    return KNOWN[given.lower()](**settings)
