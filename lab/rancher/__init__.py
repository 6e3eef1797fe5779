"""Simulated Rancher with its Harvester machine driver, and the guest clusters that it creates."""
