"""Cellar, abi. Libraries beside the driver, through which programs query its devices or link."""
