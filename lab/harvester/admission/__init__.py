"""Admission webhooks of Harvester and of its pcidevices controller: validation and mutation."""
