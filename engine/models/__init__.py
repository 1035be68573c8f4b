"""Sources of models: directories, the demo, factories; the decoder and its weight bindings."""
