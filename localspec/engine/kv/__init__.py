"""KV cells and slots: prefixes, admission, sharing and rollback."""
