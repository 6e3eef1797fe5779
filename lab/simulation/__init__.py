"""The process that simulates Harvester and Rancher, its controls and its faults."""
