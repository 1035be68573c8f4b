"""Fixtures of the native tests."""

from support.fake_cuda.fixtures import device, fake

__all__ = ["device", "fake"]
