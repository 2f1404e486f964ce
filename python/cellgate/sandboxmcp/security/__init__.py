"""Secrets, network, artifacts, checks of code and limits."""
