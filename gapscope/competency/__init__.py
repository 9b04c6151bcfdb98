"""Competency gaps: what a suite exercises (coverage), and how a subject does on each concept (performance)."""
