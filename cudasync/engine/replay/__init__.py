"""Floor 2. Replay: repeated launches of a thread join a run, which is one entry of the log."""
