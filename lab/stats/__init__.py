"""Statistics: pure functions of numbers, without files, guests or kernels."""
