"""gapscope: what a benchmark score hides."""

__version__ = "0.1.0"
