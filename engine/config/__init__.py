"""Configuration values, their parser, the levels and the mode resolver."""
