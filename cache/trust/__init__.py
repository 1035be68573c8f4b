"""Trust: who may have made the artifacts that are loaded here, and how that is shown."""
