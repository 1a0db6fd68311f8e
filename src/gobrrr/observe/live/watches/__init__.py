"""What is watched while the steps run without the profiler, each by an observer of its own."""
