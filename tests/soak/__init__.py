"""Larger counts of what the test suite checks: `python -m tests.soak NAME --minutes N`."""
