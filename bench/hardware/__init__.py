"""On a GPU: parts in; one JSON file out: what passed, what failed, how to repeat it."""
