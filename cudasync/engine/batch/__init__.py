"""Floor 2. Several launches or functions as one op: `Engine.push_many`."""
