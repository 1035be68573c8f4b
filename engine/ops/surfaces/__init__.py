"""Surfaces: tables, one a package of kernels, that say how an operator of ours is called there."""
