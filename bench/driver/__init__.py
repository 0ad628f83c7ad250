"""Driver: the calls of bench_driver on raw cuda.bindings, and what both sides work on."""
