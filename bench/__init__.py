"""Scripts that measure the speed and memory of gapscope, with the peer in the same run."""
