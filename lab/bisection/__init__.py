"""Which commit did it: a search over measured kernels, and its proof."""
