"""The tower. Seeing what ran: profiles, why an op waited, traces for Perfetto: see DESIGN.md."""

from __future__ import annotations

from cudasync.profile.annotation import annotate
from cudasync.profile.dump import dump
from cudasync.profile.live import live
from cudasync.profile.profile import Profile, profile
from cudasync.profile.progress import progress

__all__ = ["Profile", "annotate", "dump", "live", "profile", "progress"]
