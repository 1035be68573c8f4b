"""The player from Python: what boots and steps a GPU artifact, without torch."""
