"""Compiles llama.cpp for this machine; `make install` and `localspec build` share this code."""
