"""Tokens and numbers: sessions, sampling, verification, one step. No text, no HTTP, no policy."""
