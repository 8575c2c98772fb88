"""Decisions, pure: no clock, no I/O, no llama."""
