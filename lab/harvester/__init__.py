"""Simulated Harvester: controllers, webhooks, node agents and GPU hosts, as far as the API shows them."""
