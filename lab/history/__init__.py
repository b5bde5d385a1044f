"""The history: every finished result in a database, and what its numbers did over time."""
