"""Training on one device: the program whose losses the other ways must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    import cudasync as cs
    from cudasync.experiments.training.digits import Data


def train(data: Data, settings: Settings, device: Any = 0) -> tuple[cs.Array, dict[str, cs.Array]]:
    """The loss of each step, and the weights at the end."""
    weights = {
        name: xp.asarray(each, device=device) for name, each in initial(settings.hidden).items()
    }
    losses = []
    for rows, labels in data.batches(settings.batch, settings.steps):
        x, y = xp.asarray(rows, device=device), xp.asarray(labels, device=device)
        # Forward.
        hidden = hidden_layer(x, weights["w1"], weights["b1"])
        scores = hidden @ weights["w2"] + weights["b2"]
        loss, of_scores = loss_of(scores, y, settings.batch)
        # Backward.
        gradients = {"w2": hidden.T @ of_scores, "b2": xp.sum(of_scores, axis=0)}
        of_hidden = of_scores @ weights["w2"].T
        gradients["w1"], gradients["b1"] = hidden_gradients(x, hidden, of_hidden)
        # Update.
        for name in NAMES:
            weights[name] -= settings.rate * gradients[name]
        losses.append(loss)
    return xp.stack(losses), weights
