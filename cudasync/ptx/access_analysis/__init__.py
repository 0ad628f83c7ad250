"""Floor 0. A function's IR in; out, what it does to memory through each of its parameters."""
