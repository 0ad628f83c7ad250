"""Floor 4. Index arrays in; out, the elements at those places, read or written."""
