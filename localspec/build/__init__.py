"""Compiles llama.cpp for this machine: `make install` and `localspec build` by the same code."""
