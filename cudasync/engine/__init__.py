"""Floor 2. What may run now, and where: variables, hazards, timelines, host workers, errors."""
