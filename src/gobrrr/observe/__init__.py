"""The doors: each reads something that ran and returns a Profile; `trace` is the one for trace files."""
