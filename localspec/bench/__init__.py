"""Measures speculation from outside, by comparing the answers that a client of the daemon gets."""
