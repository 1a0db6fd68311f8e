"""What remedies do to a step's graph, and what the step saves by it."""
