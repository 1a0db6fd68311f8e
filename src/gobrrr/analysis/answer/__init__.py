"""From events to the answer, one rank after the other: sums, regime, checks and caveats."""
