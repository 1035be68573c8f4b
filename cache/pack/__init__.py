"""Packs: artifacts in one file, to carry where no remote reaches."""
