"""Builds and exact runs on many machines, by dask.distributed."""
