"""Floor 2. How engines, processes and waits end."""
