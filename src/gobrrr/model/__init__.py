"""The records: what is observed (columns), what it means (frozen structs), and nothing that computes."""
