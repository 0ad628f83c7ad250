"""Cellar, abi. The shared libraries that programs load: their exports and what runs behind them."""
