"""What a recording's events mean: which call launched what, which part is a step, and what recording costs."""
