"""The gate in front of the API server: what people's requests pass through, and where they can be disturbed."""
