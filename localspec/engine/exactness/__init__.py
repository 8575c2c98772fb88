"""Which forwards agree bit for bit, how that is probed, and what may therefore be claimed."""
