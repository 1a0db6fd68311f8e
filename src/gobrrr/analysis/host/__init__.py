"""What the host does in a step: loops, updates, waits, input, reports, and functions that hold it."""
