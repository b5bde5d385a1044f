"""Live mode: real time, boots of both arms in turn, and statistics in which the boot is what is sampled."""
