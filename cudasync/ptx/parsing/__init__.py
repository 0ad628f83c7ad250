"""Floor 0. PTX text in; out, a module of the typed IR, or an error with its position."""
