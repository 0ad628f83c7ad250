"""Suites: a public test-suite in; out, the outcome of each of its tests on our arrays or driver."""
