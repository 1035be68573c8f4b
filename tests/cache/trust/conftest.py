"""Fixtures of the tests of trust."""

from __future__ import annotations

import pytest
from support.trusting import Site, site_at

from vcc.cache.trust.secretkey import SecretKey


@pytest.fixture
def site(tmp_path) -> Site:
    """A store with one artifact that this account wrote, and empty trust folders."""
    return site_at(tmp_path)


@pytest.fixture
def place(site):
    """The trust folders of the site."""
    return site.place


@pytest.fixture(scope="session")
def key() -> SecretKey:
    """A private key."""
    return SecretKey.new()


@pytest.fixture(scope="session")
def other() -> SecretKey:
    """Another private key."""
    return SecretKey.new()
