"""Models, their worker processes and restarts, and the memory they share."""
