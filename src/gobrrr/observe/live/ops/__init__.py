"""One step looked at operation by operation, and the step with its batch multiplied."""
