"""The tower. Tools for users' own tests: latches, strategies, the serial oracle."""
