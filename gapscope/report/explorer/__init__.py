"""The explorer: one self-contained HTML file that shows a whole run, opened from disk without a server or a network."""
