"""Cellar. The watch of a recorded launch in a checked program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.exploration.kernel_footprints import Watch

if TYPE_CHECKING:
    from cudasync.softgpu.core.checks.convergence import Convergence
    from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
    from cudasync.softgpu.core.modules.modules import Function


class CheckedWatch(Watch):
    """Records a launch; `convergence` learns which threads come to barriers, if requested."""

    convergence: Convergence | None = None

    def failure(self, _function: Function) -> DriverFailure | None:
        told = self.convergence
        if told is not None and told.raised is not None:
            raise told.raised
        return None
