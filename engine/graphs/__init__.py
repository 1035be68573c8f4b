"""Static graphs: the protocol and one file a platform."""
