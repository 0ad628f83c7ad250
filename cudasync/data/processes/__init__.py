"""Floor 4. Worker processes of `map`: requests by pipe, arrays back through shared memory."""
