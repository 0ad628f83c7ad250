"""The least memory for objects with lifetimes: the heaviest set that may be alive at once."""

from __future__ import annotations

from collections import deque


def heaviest(weights, is_over_before):
    """The greatest weight of objects none of which is over before another.

    This is Dilworth's theorem with weights: the sum of the weights, less the maximum flow from each
    object to later ones.
    """
    count = len(weights)
    after = [[j for j in range(count) if is_over_before(i, j)] for i in range(count)]
    gives, takes = list(weights), list(weights)
    handed: dict[tuple[int, int], int] = {}
    moved = True
    while moved:
        moved = False
        for first in range(count):
            while gives[first] and (path := _path(first, after, takes, handed)):
                much = min(
                    gives[first],
                    takes[path[-1][1]],
                    *[handed[giver, taker] for giver, taker, is_back in path if is_back],
                )
                for giver, taker, is_back in path:
                    handed[giver, taker] = handed.get((giver, taker), 0) + (
                        -much if is_back else much
                    )
                gives[first] -= much
                takes[path[-1][1]] -= much
                moved = True
    return sum(gives)


def _path(first, after, takes, handed):
    """An augmenting path from `first`: to a taker with room, or by taking flow back."""
    via = {("giver", first): None}
    waiting = deque([("giver", first)])
    while waiting:
        side, at = here = waiting.popleft()
        if side == "taker" and takes[at]:
            steps = []
            while via[here] is not None:
                there = via[here]
                is_back = there[0] == "taker"
                steps.append((here[1], there[1], True) if is_back else (there[1], here[1], False))
                here = there
            return steps[::-1]
        if side == "giver":
            nexts = [("taker", each) for each in after[at]]
        else:
            nexts = [("giver", g) for (g, t), much in handed.items() if t == at and much]
        for each in nexts:
            if each not in via:
                via[each] = here
                waiting.append(each)
    return None
