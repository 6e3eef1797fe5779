"""A data centre on a laptop: a real Kubernetes control plane with simulated GPU hosts on it."""
