"""The lab: A/B measurement and bisection of Linux kernels in virtual machines."""

__version__ = "0.1.0"
