"""The objects of requests and results."""
