"""What a step changes: where it is found, a copy of it, and how it is put back."""
