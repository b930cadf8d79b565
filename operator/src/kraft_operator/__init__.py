"""The operator of kraftcluster: it reconciles `KRaftCluster` resources on Kubernetes, and keeps local clusters."""
