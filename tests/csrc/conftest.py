"""Fixtures of the native tests."""

from support.fake_cuda.fixtures import arena, device, fake

__all__ = ["arena", "device", "fake"]
