"""Floor 5. Parameter servers: keys spread over processes that update them as pushes arrive."""
