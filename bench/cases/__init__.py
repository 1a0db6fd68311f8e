"""Small reproductions of what people hit, each sick and healthy: `gobrrr diagnose` must name the one and not the other.

One file a case, `<id>_<words>.py`, with

    CASE = "L05"                      # the case it reproduces
    CODE = "O03"                      # what must be named on the sick form and not on the healthy one
    RUNS_ON = "cpu"                   # "cuda" for what a CPU does not show, "ranks" for what takes two (ranks.py)
    def faulty(device: str = "cpu") -> Workload: ...
    def fixed(device: str = "cpu") -> Workload: ...

A case where the obvious treatment gives little has `NEGATIVE = True`: then neither form may be promised more than a
twentieth of the step by the treatments in `TEMPTING`.
"""
