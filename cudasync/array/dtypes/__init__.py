"""Floor 4, dtypes. The dtypes of arrays, their promotion, and their limits."""
