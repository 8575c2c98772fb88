"""Measuring speculation from outside: what a client of the daemon sees, told apart and compared."""
