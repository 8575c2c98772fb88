"""Programs of `bench/` that need the engine: each measures in its own process, which may crash."""
