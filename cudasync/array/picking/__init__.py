"""Floor 4, picking. Elements selected by index arrays."""
