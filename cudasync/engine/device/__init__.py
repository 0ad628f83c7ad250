"""Floor 2. Streams and events, and the issue and end of device ops."""
