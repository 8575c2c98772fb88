"""Conversations, in memory and on disk: the same ones in the terminal and on the page."""
