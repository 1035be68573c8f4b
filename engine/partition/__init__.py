"""Passed to Pieces: cut at splitting ops, find the unique ones."""
