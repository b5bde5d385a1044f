"""The atlas: the cost of every operation in every kernel, and when it changed."""
