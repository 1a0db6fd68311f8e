"""A step as a graph: run again without the profiler, changed, with other ranks or on other hardware."""
