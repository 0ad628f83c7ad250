"""Floor 3, placement. Which device does what of a program that was recorded for any of them.

`memory` has what may be elsewhere, `schedule` chooses (HEFT), `costs` is by what, `freedom` tells
which steps may be moved, `moves` has the copies that this takes.
"""
