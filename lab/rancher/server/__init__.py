"""Rancher itself: its API server, its controllers and its address."""
