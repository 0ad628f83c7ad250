"""Floor 4, interchange. Memory and streams of other libraries, by DLPack and similar protocols."""
