"""The report of a run: plot data, figures and summaries, from the artifacts of the other stages."""
