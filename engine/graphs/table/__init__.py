"""The node table: a GPU step as data, written without a GPU and played without torch."""
