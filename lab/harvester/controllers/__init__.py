"""Controllers that run once per cluster: addons, driver pods, allocation annotations, removed nodes."""
