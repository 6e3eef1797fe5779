"""Rancher server: its API server, its controllers and its address."""
