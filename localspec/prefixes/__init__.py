"""Prefixes that were read before, in memory and on disk. Bytes and tokens; no engine, no numpy."""
