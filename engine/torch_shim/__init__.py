"""Every private torch or Triton API that vcc uses, one function each."""
