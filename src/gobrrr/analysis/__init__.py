"""Pure functions from a profile to what it means: no input, no output, no torch."""
