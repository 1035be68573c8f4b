"""Kernels of the main path in Triton: compiled to cubins at build, never run through Triton."""
