"""SAGE (arXiv 2605.12022): variants of benchmark items in seven types, verified before anyone is scored on them."""
