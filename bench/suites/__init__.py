"""Suites: run public test-suites on our arrays or driver, and collect the outcome of each test."""
