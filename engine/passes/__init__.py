"""Traced to Passed: graph rewrites, one file a pass."""
