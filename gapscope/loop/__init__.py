"""The loop that closes: the gaps of the first half choose what the second half rewrites, and the result is read for them again.

The only package that may use both ``competency`` and ``variants``, which do not know of each other.
"""
