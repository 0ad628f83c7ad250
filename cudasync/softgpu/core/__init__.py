"""Cellar. The model of a GPU and its driver, in plain Python; C only touches memory."""
