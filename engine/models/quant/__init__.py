"""Checkpoints with fp8 weights: how they say so, which tensors they hold, and their projections."""
