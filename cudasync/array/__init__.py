"""Floor 4. Arrays on a device, and kernels that are called on them."""
