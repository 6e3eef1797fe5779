"""The gate in front of the API server, through which users' requests pass and where they can fail."""
