"""Source to Traced: one graph of the whole step, under fake tensors."""
