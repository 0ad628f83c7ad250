"""Floor 4, dtypes. Which there are, how they promote, and what their limits are."""
