"""Models that `transformers` defines, as the build sees them: made without weights, and traced."""
