"""Floor 4, products. Matrix products: sums over a common axis of two arrays."""
