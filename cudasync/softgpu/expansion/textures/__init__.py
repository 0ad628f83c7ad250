"""Cellar. Instructions on textures and surfaces become calls of functions written in PTX."""
