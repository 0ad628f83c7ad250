"""Floor 4. `cache`: items of one pass, kept in memory or in a folder for all later ones."""
