"""The messages between supervisor and worker, their frames, and the values that clients get."""
