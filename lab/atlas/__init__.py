"""The atlas: what every operation costs in every kernel, and when that changed."""
