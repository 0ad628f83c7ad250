"""Cellar. The C side of the software GPU: the ELF stub, the function table, the calls."""
