"""Floor 1. A kernel's arguments: checked, converted, packed."""
