"""The kernels of `csrc/kernels`: their cubins in this install, and each operator's launch."""
