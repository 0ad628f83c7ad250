"""Floor 4, guards. What a traced function read from outside, and whether that is unchanged."""
