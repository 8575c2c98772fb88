"""Listening, access, limits, routes and their handlers."""
