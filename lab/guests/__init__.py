"""Guests: image, QEMU command lines, the cost model plugin, and the host around them."""
