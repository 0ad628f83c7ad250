"""Floor 4, host. Arrays on the CPU: NumPy's loops as ops of the same engine."""
