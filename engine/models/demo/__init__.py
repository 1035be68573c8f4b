"""The demo model: a small trained decoder in this directory, and how it was made."""
