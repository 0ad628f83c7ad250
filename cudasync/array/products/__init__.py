"""Floor 4, products. Matrix products: sums over an axis that two arrays have in common."""
