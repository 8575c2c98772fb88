"""Decisions, pure: no clock, no I/O, no llama.

"doubled 0.98 (0.93), halved 1.00 (0.98)" beside a constant is the speed with that alone, by that
with all as they are: the mean of four simulated worlds, in brackets the lowest. Of a memory or a
margin it is the distance from one that is doubled (docs/internals/simulated.md).
"""
