"""The benchmarks of the repository: `make bench` and its relatives. Nothing here is shipped.

Clusters of real processes under load from wrk: wrk, cluster, cost.
"""
