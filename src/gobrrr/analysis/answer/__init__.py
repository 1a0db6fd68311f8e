"""One rank after the other from events to the answer: its sums, its regime, its checks and its caveats."""
