"""Floor 1. Memory and streams from and to other libraries: DLPack and its kin."""
