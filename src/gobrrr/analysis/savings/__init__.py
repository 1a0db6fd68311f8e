"""How remedies change a step's graph, and how much time the step saves."""
