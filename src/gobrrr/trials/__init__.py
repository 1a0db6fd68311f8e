"""Apply treatments to a workload in this process, measure each, and keep what helps. The search itself needs no torch.

door, treat, example     what the library and the command line call
search, choosing, costs  which way is tried next, and when the search ends; runs no step
candidates, ledger       what each way is predicted to save, and how far earlier predictions were off
fingerprint              what makes two workloads the same
bench, remote, worker    run steps: in this process, or in a separate one (with messages between them)
trial, arms, timing      one trial: both forms, applied and timed in turns
numerics and what it needs (observed, quantities, judging, rounding, reference)
"""
