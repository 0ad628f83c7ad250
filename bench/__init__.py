"""Benches: the programs that a user starts, and a room for what the programs of a subject share."""
