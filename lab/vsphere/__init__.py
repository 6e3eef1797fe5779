"""The simulated vCenter: its inventory, its process, and how to reach it."""
