"""Cellar, expansion. Rules for single instructions, by the headings of the PTX ISA."""
