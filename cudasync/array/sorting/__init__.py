"""Floor 4, sorting. Stable sorting of rows."""
