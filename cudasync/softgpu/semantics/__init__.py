"""Cellar. What a PTX instruction means or may not mean, asked by both lowerings."""
