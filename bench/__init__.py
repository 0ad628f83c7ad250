"""Benches: the programs that a user starts, and a room for the shared code of each subject."""
