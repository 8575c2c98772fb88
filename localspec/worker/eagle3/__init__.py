"""Trains EAGLE-3 heads: texts of the target, what it computed of them, and a layer that learns."""
