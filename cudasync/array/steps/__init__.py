"""Floor 4, steps. A launch of a generated kernel on arrays: what plans of several are made of."""
