"""Floor 1. Streams and events, which of them is meant, and what they enqueue by themselves."""
