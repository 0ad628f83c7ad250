"""Floor 1. Streams and events: the current stream, waits, and calls of native functions."""
