"""Engine: workloads of host ops, and the engines that run them, ours and others."""
