"""Floor 4, scans. Running sums and products along an axis."""
