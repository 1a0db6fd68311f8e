"""Apply treatments to a workload that is run here, measure each, and keep what helps. What searches needs no torch.

door, treat, example     what the library and the command line call
search, choosing, costs  which way is tried next, and when it ends; no step is run here
candidates, ledger       what each way is predicted to save, and what earlier trials say of that
fingerprint              what makes two workloads the same
bench, remote, worker    where steps are run: in this process, or in one of its own (messages between them)
trial, arms, timing      one trial: both forms, applied and timed in turns
numerics and what it needs (observed, quantities, judging, rounding, reference)
"""
