"""Cellar. The effect of ldmatrix, stmatrix and movmatrix on the halves that lanes bring.

The lane that names a row of eight halves brings it as two 64-bit words; lane 8 * t + r names row r
of tile t. In registers, lane 4 * r + c holds the halves 2 * c and 2 * c + 1 of row r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.softgpu.semantics.matrix_fragments import LANES

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

Words: TypeAlias = tuple[int, ...]
Lanes: TypeAlias = dict[int, Words]
# Rows of halves.
Tile: TypeAlias = list[list[int]]

_MASK = 0xFFFF


def tile_count(instruction: Instruction) -> int:
    """The number of tiles: 1, 2 or 4."""
    return next(int(each[1:]) for each in instruction.modifiers if each in ("x1", "x2", "x4"))


def distribute_rows(instruction: Instruction, lanes: Lanes) -> Lanes:
    """ldmatrix: the registers of each lane, from rows."""
    nothing = (0, 0)
    tiles = []
    for first in range(0, 8 * tile_count(instruction), 8):
        rows = [lanes.get(lane, nothing) for lane in range(first, first + 8)]
        tile = [[word >> 16 * k & _MASK for word in row[:2] for k in range(4)] for row in rows]
        tiles.append(_transposed(tile) if "trans" in instruction.modifiers else tile)
    return {lane: tuple(_register(tile, lane) for tile in tiles) for lane in lanes}


def collect_rows(instruction: Instruction, lanes: Lanes) -> Lanes:
    """stmatrix: the row that each lane names as two words, from registers."""
    rows: list[list[int]] = []
    for number in range(tile_count(instruction)):
        tile = _tile([lanes[lane][number] if lane in lanes else 0 for lane in range(LANES)])
        rows += _transposed(tile) if "trans" in instruction.modifiers else tile
    packed = [
        tuple(sum(row[first + k] << 16 * k for k in range(4)) for first in (0, 4)) for row in rows
    ]
    return {lane: packed[lane] if lane < len(packed) else (0, 0) for lane in lanes}


def turn_tile(lanes: Lanes) -> Lanes:
    """movmatrix: a tile with rows and columns exchanged."""
    turned = _transposed(_tile([lanes[lane][0] if lane in lanes else 0 for lane in range(LANES)]))
    return {lane: (_register(turned, lane),) for lane in lanes}


def _tile(registers: list[int]) -> Tile:
    return [
        [registers[4 * row + column // 2] >> 16 * (column % 2) & _MASK for column in range(8)]
        for row in range(8)
    ]


def _transposed(tile: Tile) -> Tile:
    return [list(column) for column in zip(*tile, strict=True)]


def _register(tile: Tile, lane: int) -> int:
    row, column = lane // 4, lane % 4 * 2
    return tile[row][column] | tile[row][column + 1] << 16
