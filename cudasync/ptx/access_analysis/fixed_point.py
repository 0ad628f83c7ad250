"""Floor 0. Origins flow through the steps of a kernel until nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.flow_graph import GLOBAL, LOCAL, SHARED, Flow, Move, Step

if TYPE_CHECKING:
    from cudasync.ptx.access_analysis.flow_graph import MemoryAccess


def settle(flow: Flow) -> None:
    """Let origins flow until nothing changes. Sets only grow, so this ends.

    An address that still has no origin then, or only pieces, may be anything. Values stored and
    loaded there flow again.
    """
    while True:
        while _pass(flow):
            pass
        base = flow.origins.base
        nowhere = {each.address for each in flow.accesses if not flow.slots[each.address] & base}
        if not nowhere:
            return
        for slot in nowhere:
            flow.slots[slot] |= flow.origins.any


def _pass(flow: Flow) -> bool:
    slots = flow.slots
    changed = False
    for step in flow.steps:
        found = _result(flow, step)
        for target in step.targets:
            if found & ~slots[target]:
                slots[target] |= found
                changed = True
    for access in flow.accesses:
        if access.stored:
            changed = _store(flow, access) or changed
    return changed


def _result(flow: Flow, step: Step) -> int:
    origins = flow.origins
    found = 0
    for source in step.sources:
        found |= flow.slots[source]
    match step.move:
        case Move.NUMBER:
            found = origins.as_number(found)
        case Move.SCALED:
            found = found & origins.pieces | origins.as_number(found)
        case Move.JOINED:
            found = origins.as_joined(found)
        case Move.LOAD | Move.LOAD_GLOBAL:
            # The value may have been stored in parts.
            is_generic = step.move is Move.LOAD
            found = origins.as_joined(_contents(flow, found, is_generic=is_generic))
    return origins.as_piece(found) if step.is_piece else found


def _contents(flow: Flow, address: int, *, is_generic: bool) -> int:
    """The origins that memory at `address` may hold."""
    if not address:
        return 0
    origins = flow.origins
    cells, elsewhere = origins.split_cells(address)
    found = 0
    for cell in reachable_cells(flow, address, is_generic=is_generic):
        found |= flow.slots[flow.cell_slots[cell]]
    if not cells or elsewhere & origins.base:
        found |= origins.as_loaded(elsewhere)
        for origin, addresses in flow.initial.items():
            through = origins.direct_bit(origin) | origins.loaded | origins.any
            if elsewhere & through:
                found |= addresses
    return found


def reachable_cells(flow: Flow, address: int, *, is_generic: bool) -> list[int]:
    """The cells that an access at `address` may touch."""
    origins = flow.origins
    cells, elsewhere = origins.split_cells(address)
    if not cells or elsewhere & origins.base:
        cells.append(GLOBAL)
    if is_generic and (elsewhere & (origins.any | origins.loaded) or not address & origins.base):
        cells += [LOCAL, SHARED]
    return cells


def _store(flow: Flow, access: MemoryAccess) -> bool:
    """Add the stored values to the contents of the cells; True if that changes a cell."""
    address = flow.slots[access.address]
    if not address:
        return False
    stored = 0
    for slot in access.stored:
        stored |= flow.slots[slot]
    if access.is_piece:
        stored = flow.origins.as_piece(stored)
    changed = False
    for cell in reachable_cells(flow, address, is_generic=access.is_generic):
        slot = flow.cell_slots[cell]
        if stored & ~flow.slots[slot]:
            flow.slots[slot] |= stored
            changed = True
    return changed
