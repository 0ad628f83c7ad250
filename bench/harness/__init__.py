"""Harness: contenders in; out, ratios of one process, judged by goals, as tables and JSON."""
