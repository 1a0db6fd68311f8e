"""The operating system: processors, memory, quotas, paths, and files that are written whole."""
