"""The Harvester part of the lab: controllers, webhooks, node agents and GPU hosts, as far as the API shows them."""
