"""PyTorch's collectives on the CPU, for a bench process that is one of several ranks."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path


class ByGloo:
    """`torch` and `gloo` of this rank, loaded and joined at their first use."""

    folder: Path
    rank: int
    ranks: int

    @cached_property
    def torch(self):
        import torch

        torch.set_num_threads(1)
        return torch

    @cached_property
    def gloo(self):
        """PyTorch's collectives, whose ranks meet through a file."""
        import torch.distributed as gloo

        meeting = f"file://{self.folder / 'gloo'}"
        gloo.init_process_group("gloo", init_method=meeting, rank=self.rank, world_size=self.ranks)
        return gloo
