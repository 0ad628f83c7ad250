"""Data: photographs, and ways to decode them into batches."""
