"""Floor 2. What ops read and write: the history of each variable and byte range."""
