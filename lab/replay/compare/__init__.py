"""Compare recorded objects and states with those of the lab."""
