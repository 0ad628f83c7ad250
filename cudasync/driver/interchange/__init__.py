"""Floor 1. Exchange of memory and streams with other libraries: DLPack and other protocols."""
