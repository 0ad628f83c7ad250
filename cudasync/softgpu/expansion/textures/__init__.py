"""Cellar. Instructions on textures and surfaces: calls of functions that are written in PTX."""
