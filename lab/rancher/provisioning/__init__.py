"""Provisioning of clusters: pools, machines, rollouts, and what they need on Harvester."""
