"""Remotes: stores behind a URL, whose every byte is verified before it can be seen."""
