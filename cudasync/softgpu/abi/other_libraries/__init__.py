"""Cellar, abi. Libraries beside the driver that programs ask about its devices."""
