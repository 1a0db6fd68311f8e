"""Measurements of gobrrr itself: how fast the trace door is, and what it needs."""
