"""Numbers out of what programs print. Each module reads one format; all are pure functions over lines."""
