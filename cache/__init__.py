"""The store of artifacts: keys, manifests, blobs. Pure Python: no torch, no CUDA, no ctypes."""
