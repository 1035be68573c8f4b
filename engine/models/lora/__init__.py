"""Low-rank adapters (LoRA) of the built-in decoder: where they go, their files, and the module."""
