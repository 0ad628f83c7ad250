"""Cellar, oracle. LLVM text of one thread: registers, records, symbols."""
