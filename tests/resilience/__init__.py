"""Faults, interruptions and two users at once, measured on labs: `make resilience`."""
