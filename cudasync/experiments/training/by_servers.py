"""Training by servers: a worker pushes the gradients of its rows, and pulls the updated weights.

A worker computes with weights that may lack updates of other workers; it waits for them only if it
is some steps ahead. With a store of synchronous workers ("dist_sync") the same text gives the
losses of one device. The text is the same for any place of the servers, and any number of workers
in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import xp
from cudasync.experiments.training.model import (
    NAMES,
    Settings,
    hidden_gradients,
    hidden_layer,
    initial,
    loss_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import cudasync as cs
    from cudasync.experiments.training.digits import Data


def train(
    data: Data, settings: Settings, stores: Sequence[cs.kvstore.KVStore], label: str = ""
) -> tuple[cs.Array, dict[str, cs.Array]]:
    """The loss of each step, and the weights at the end, as the workers of this process see them.

    `label` separates the keys of several trainings with the same stores.
    """
    keys = [f"{label}{name}" for name in NAMES]
    first = initial(settings.hidden)
    for store in stores:
        store.set_optimizer("sgd", learning_rate=settings.rate)
        store.init(keys, [xp.asarray(first[name], device="cpu") for name in NAMES])
    losses = []
    for rows, labels in data.batches(settings.batch, settings.steps):
        row = []
        for store in stores:
            weights = [xp.empty(first[name].shape, device="cpu") for name in NAMES]
            store.pull(keys, weights)
            w1, b1, w2, b2 = weights
            # Every `num_workers`-th row is this worker's.
            x = xp.asarray(rows[store.rank :: store.num_workers], device="cpu")
            y = xp.asarray(labels[store.rank :: store.num_workers], device="cpu")
            # Forward.
            hidden = hidden_layer(x, w1, b1)
            loss, of_scores = loss_of(hidden @ w2 + b2, y, settings.batch)
            # Backward.
            gradients = {"w2": hidden.T @ of_scores, "b2": xp.sum(of_scores, axis=0)}
            gradients["w1"], gradients["b1"] = hidden_gradients(x, hidden, of_scores @ w2.T)
            store.push(keys, [gradients[name] for name in NAMES])
            row.append(loss * store.num_workers)
        losses.append(xp.mean(xp.stack(row)))
    last = [xp.empty(first[name].shape, device="cpu") for name in NAMES]
    stores[0].pull(keys, last)
    return xp.stack(losses), dict(zip(NAMES, last, strict=True))
