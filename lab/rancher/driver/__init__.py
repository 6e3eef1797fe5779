"""Harvester machine driver of Rancher: its flags, and the VMs that it creates and removes."""
