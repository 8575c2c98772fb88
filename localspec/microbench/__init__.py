"""Programs of `bench/` that need the engine: each measures in a process of its own, and may die."""
