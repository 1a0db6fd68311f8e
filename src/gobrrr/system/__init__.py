"""What the operating system says and holds: processors, memory, quotas, paths, files written whole."""
