"""Measures speculation from outside: the answers that a client of the daemon gets, compared."""
