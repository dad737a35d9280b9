"""A simulation of the parts of Kubernetes that a rollout involves: pods, probes, Deployments, Services, a proxy."""
