"""Floor 4, traced functions. `@cs.graph_function`: a graph for each signature of a function."""
