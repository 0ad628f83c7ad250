"""Graphs: the cases of bench_graph and the programs of bench_dags."""
