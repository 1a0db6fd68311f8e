"""Patterns in a step's operations: work that is done again, grows, is padded, converted or in a slow form."""
