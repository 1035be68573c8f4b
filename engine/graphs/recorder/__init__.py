"""The recorder: CUDA graphs that were captured on a device, as node tables. Build side only."""
