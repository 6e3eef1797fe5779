"""Provisioning of clusters: pools, machines, rollouts, and their prerequisites on Harvester."""
