"""Apply treatments to a workload that is run here, measure each, and keep what helps. Needs torch."""
