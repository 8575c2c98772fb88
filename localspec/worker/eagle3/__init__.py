"""Trains EAGLE-3 heads: the target writes texts, and one layer learns from its features."""
