"""Models, their worker processes and restarts, and who holds memory."""
