"""Files, processes, git, locks, progress: nothing here knows of kernels or guests."""
