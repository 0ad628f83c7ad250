"""Floor 4, sorting. Rows in order, stably."""
