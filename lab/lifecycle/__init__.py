"""Start, reset, stop and control a lab."""
