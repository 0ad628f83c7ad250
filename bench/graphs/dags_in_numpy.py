"""The expected results of the programs of bench_dags, in NumPy and in double precision."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

OPTIONS = 10
STRIKE, RATE, VOLATILITY, YEARS = 60.0, 0.035, 0.2, 10.0
HITS_ROUNDS = 5

Values: TypeAlias = dict[str, np.ndarray]


def vec(v: Values) -> Values:
    x, y = v["x"].astype(float), v["y"].astype(float)
    return {"sum": np.array([(x**2).sum() - (y**2).sum()])}


def black_scholes(v: Values) -> Values:
    spread = VOLATILITY * math.sqrt(YEARS)

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    def price(spot: float) -> float:
        high = (math.log(spot / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / spread
        return spot * normal(high) - STRIKE * math.exp(-RATE * YEARS) * normal(high - spread)

    return {f"price{i}": np.array([*map(price, v[f"spot{i}"])]) for i in range(OPTIONS)}


def gauss(radius: int, deviation: float) -> np.ndarray:
    """Weights of a square around its middle, with the sum 1."""
    off = np.arange(-radius, radius + 1)
    found = np.exp(-(off[:, None] ** 2 + off**2) / (2 * deviation**2))
    return (found / found.sum()).astype(np.float32)


def image(v: Values) -> Values:
    side = math.isqrt(v["image"].size)
    picture = v["image"].astype(float).reshape(side, side)
    names = ("small", "large", "sharp")
    blurred = {name: weighted(picture, v[f"{name} weights"]) for name in names}
    down = np.outer([-1, 0, 1], [1, 2, 1])
    small, mask = (
        np.hypot(weighted(blurred[name], down), weighted(blurred[name], down.T))
        for name in ("small", "large")
    )
    mask = np.minimum(1, 5 * (mask - mask.min()) / (mask.max() - mask.min()))
    sharp = np.clip(picture * 1.5 - blurred["sharp"] * 0.5, 0, 1)
    inner = sharp * mask + blurred["large"] * (1 - mask)
    return {"out": (inner * small + blurred["small"] * (1 - small)).ravel()}


def weighted(picture: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted sum around each place. Values outside the picture are 0."""
    side, radius = len(picture), len(weights) // 2
    padded = np.pad(picture, radius)
    return sum(
        weight * padded[y : y + side, x : x + side] for (y, x), weight in np.ndenumerate(weights)
    )


def ensemble(v: Values) -> Values:
    x = v["x"].astype(float)
    z = (x - x.mean(0)) / x.std(0)
    # Naive Bayes goes through a second softmax, like the other classifier.
    bayes = softmax(softmax(x @ v["likelihood"].T + v["prior"]))
    regression = softmax(z @ v["ridge"].T + v["intercept"])
    return {"bayes": bayes, "regression": regression, "best": (bayes + regression).argmax(1)}


def softmax(x: np.ndarray) -> np.ndarray:
    found = np.exp(x - x.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def hits(v: Values, rounds: int = HITS_ROUNDS) -> Values:
    hubs, authorities = v["hubs"].astype(float), v["authorities"].astype(float)
    for _ in range(rounds):
        into = np.add.reduceat(np.append(hubs[v["in from"]], 0), v["in begin"][:-1])
        # `reduceat` returns an element for an empty sum.
        into[np.diff(v["in begin"]) == 0] = 0
        out = np.add.reduceat(authorities[v["out from"]], v["out begin"][:-1])
        authorities, hubs = into / into.sum(), out / out.sum()
    return {"hubs": hubs, "authorities": authorities}


def twins(v: Values) -> Values:
    deep = [second_of(v, x) for x in "xy"]
    return {"alike": np.array([np.concatenate(deep) @ v["last"]])}


def second_of(v: Values, x: str) -> np.ndarray:
    side = math.isqrt(v[x].size)
    wide = convolved(v[x].astype(float).reshape(1, side, side), v["first"])
    pooled = wide.reshape(-1, side // 2, 2, side // 2, 2).max((2, 4))
    return convolved(pooled, v["second"]).ravel()


def convolved(pictures: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Convolve each picture with 3 x 3 weights for each output, and cut values below 0."""
    found = np.array(
        [
            sum(weighted(each, w.reshape(3, 3)) for each, w in zip(pictures, to, strict=True))
            for to in weights
        ]
    )
    return np.maximum(found, 0)
