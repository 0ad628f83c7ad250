"""Arrays: what bench_arrays compares itself with, and the time to compile a new function."""
