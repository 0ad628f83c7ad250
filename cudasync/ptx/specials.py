"""Floor 0. The special registers of PTX, and the type of a plain read of each.

Names and types are those of the PTX ISA, section "Special Registers".
"""

from __future__ import annotations

from cudasync.ptx.ir import Integer, Special
from cudasync.ptx.types import ScalarType

_BY_TYPE = {
    ScalarType.U32: """
        laneid warpid nwarpid smid nsmid cluster_ctarank cluster_nctarank
        lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt
        clock clock_hi globaltimer_lo globaltimer_hi
        total_smem_size aggr_smem_size dynamic_smem_size
        pm0 pm1 pm2 pm3 pm4 pm5 pm6 pm7
        """,
    ScalarType.U64: """
        gridid clock64 globaltimer current_graph_exec
        pm0_64 pm1_64 pm2_64 pm3_64 pm4_64 pm5_64 pm6_64 pm7_64
        """,
    ScalarType.B32: """
        reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap
        reserved_smem_offset_0 reserved_smem_offset_1
        """,
    ScalarType.PRED: "is_explicit_cluster",
}
_VECTORS = "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid"
_ENVIRONMENT_REGISTERS = 32


def _specials() -> dict[str, Special | Integer]:
    specials = [
        Special(f"%{name}", type_) for type_, names in _BY_TYPE.items() for name in names.split()
    ]
    for name in _VECTORS.split():
        specials += [Special(f"%{name}.{axis}", ScalarType.U32) for axis in "xyzw"]
    for index in range(_ENVIRONMENT_REGISTERS):
        specials.append(Special(f"%envreg{index}", ScalarType.B32))
    # The one named constant that is not a register.
    return {"WARP_SZ": Integer(32), **{special.name: special for special in specials}}


SPECIALS = _specials()
