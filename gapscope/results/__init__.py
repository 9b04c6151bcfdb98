"""Importers of a subject's per-item results."""
