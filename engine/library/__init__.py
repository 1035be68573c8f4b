"""A module or a function of a running program into compiled code from the store, and its calls."""
