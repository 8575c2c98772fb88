"""Configurations that other tools need to talk to the daemon. Pure functions that return text."""
