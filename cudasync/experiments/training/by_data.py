"""Training by data: each rank has all weights and a part of each batch.

The text is the same for any number of ranks, on devices of this process or in several processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cudasync as cs
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
    from cudasync.experiments.training.digits import Data

# Small enough for two buckets: the second layer's gradients travel while the first layer's are
# computed.
BUCKET_BYTES = 4096


def train(
    data: Data, settings: Settings, comm: cs.distributed.Communicator
) -> tuple[cs.Array, dict[str, cs.Array]]:
    """The loss of each step, and the weights at the end, of the first rank here."""
    weights = {
        name: comm.each(lambda rank, device, each=each: xp.asarray(each, device=device))  # type: ignore[misc]
        for name, each in initial(settings.hidden).items()
    }
    # Every rank divides by the rows of the whole batch, so gradients are summed.
    model = cs.parallel.DataParallel(weights, comm, op="sum", bucket_bytes=BUCKET_BYTES)
    losses = []
    for rows, labels in data.batches(settings.batch, settings.steps):
        row = []
        for here, (rank, device) in enumerate(zip(comm.ranks, comm.devices, strict=True)):
            w1, b1, w2, b2 = (weights[name][here] for name in NAMES)
            # Every `comm.size`-th row is this rank's.
            x = xp.asarray(rows[rank :: comm.size], device=device)
            y = xp.asarray(labels[rank :: comm.size], device=device)
            # Forward.
            hidden = hidden_layer(x, w1, b1)
            loss, of_scores = loss_of(hidden @ w2 + b2, y, settings.batch)
            # Backward: a ready gradient may travel.
            model.ready("b2", xp.sum(of_scores, axis=0), rank=rank)
            model.ready("w2", hidden.T @ of_scores, rank=rank)
            of_w1, of_b1 = hidden_gradients(x, hidden, of_scores @ w2.T)
            model.ready("b1", of_b1, rank=rank)
            model.ready("w1", of_w1, rank=rank)
            row.append(loss)
        # Update.
        gradients = model.finish()
        for name in NAMES:
            for weight, gradient in zip(weights[name], gradients[name], strict=True):
                weight -= settings.rate * gradient
        losses.append(row)
    totals = [xp.stack(list(column)) for column in zip(*losses, strict=True)]
    comm.all_reduce(totals)
    return totals[0], {name: weights[name][0] for name in NAMES}
