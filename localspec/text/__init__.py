"""Tokens to text and back: templates, stop strings, UTF-8, grammars."""
