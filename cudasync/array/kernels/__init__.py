"""Floor 4, kernels. Kernels called on arrays: arguments in; out, a launch and its accesses."""
