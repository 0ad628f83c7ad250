"""Floor 2. Streams, events, and how device ops are issued and end."""
