"""The simulated Cluster API with its provider for vSphere: a management cluster and the clusters that it creates."""
