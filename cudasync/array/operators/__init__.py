"""Floor 4, operators. Python's protocols on arrays: operators, values, assignment."""
