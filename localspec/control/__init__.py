"""The policy's decisions, pure: no clock, no I/O, no llama.cpp.

"doubled 0.98 (0.93), halved 1.00 (0.98)" beside a constant is the speed with this constant alone
doubled or halved, divided by the speed with all constants as they are: the mean of four simulated
worlds, in brackets the lowest. Of a memory such as 0.98 or a margin such as 1.1 the distance from
one is doubled or halved (docs/internals/simulated.md).
"""
