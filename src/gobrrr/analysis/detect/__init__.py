"""Patterns in a step's operations: repeated, growing, padded or converted work, and operations in a slow form."""
