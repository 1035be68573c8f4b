"""Fixtures of tests on the libcuda double."""

from support.fake_cuda.fixtures import arena, device, fake

__all__ = ["arena", "device", "fake"]
