"""Cellar. The model of a GPU and its driver: plain Python on integers; C only to touch memory."""
