"""Renderers: each reads a Diagnosis and returns text or bytes; none of them computes a conclusion."""
