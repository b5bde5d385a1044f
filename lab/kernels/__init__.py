"""From a kernel spec to a kernel that boots."""
