"""Warm start of other programs: their Inductor and Triton caches come from the store and go back.

These caches are pickles and libraries that the program loads. vcc carries them as bytes: it never
unpickles one, and hands over only what this account wrote or a trusted key signed.
"""
