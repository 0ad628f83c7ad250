"""Overlap: programs without a stream, and their commands on streams placed by hand."""
