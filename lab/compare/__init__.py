"""Comparisons: A/B, matrix, A/A, in exact and live mode."""
