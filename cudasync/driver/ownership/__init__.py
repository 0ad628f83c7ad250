"""Floor 1. Who owns a driver handle, and how long it is valid."""
