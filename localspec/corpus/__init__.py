"""The user's own files as a source of drafts: which they are, and their index."""
