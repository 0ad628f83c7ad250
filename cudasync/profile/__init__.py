"""The tower. Seeing what ran: profiles, why an op waited, traces for Perfetto: see DESIGN.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.profile.annotation import annotate
    from cudasync.profile.dump import dump
    from cudasync.profile.live import live
    from cudasync.profile.profile import Profile, profile
    from cudasync.profile.progress import progress

__all__ = ["Profile", "annotate", "dump", "live", "profile", "progress"]

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(
        __name__,
        {
            "annotation": ("annotate",),
            "dump": ("dump",),
            "live": ("live",),
            "profile": ("Profile", "profile"),
            "progress": ("progress",),
        },
    )
