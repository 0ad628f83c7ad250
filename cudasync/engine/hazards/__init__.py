"""Floor 2. Reads and writes of ops: the history of each variable and byte range."""
