"""The command groups of `lab`, one module each."""
