"""Backends by their documented names. There is one: cellgate's sandbox."""
