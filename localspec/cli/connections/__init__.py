"""Configurations that other tools need to talk to the daemon. Pure: who is meant, text out."""
