"""Floor 4, picking. Elements by indices that are arrays themselves."""
