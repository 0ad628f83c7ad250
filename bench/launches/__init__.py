"""Launches: bursts of one small kernel, each way to issue them, and counts of what that takes."""
