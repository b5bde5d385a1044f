"""Workloads, their cases, and parsers of their output."""
