"""Floor 3, placement. Chooses the device of each step that was recorded for any device.

`memory` has the memory that may be elsewhere, `schedule` chooses (HEFT), `costs` has the costs.
`movable_steps` finds the steps that may move, and `rewriting` adds the necessary copies.
"""
