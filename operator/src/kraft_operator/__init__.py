"""The operator that runs kraftcluster on Kubernetes (reconciles `KRaftCluster` resources)."""
