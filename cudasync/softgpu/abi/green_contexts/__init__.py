"""Cellar, abi. Driver calls about green contexts and the resources that they are made of."""
