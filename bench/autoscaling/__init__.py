"""A day with a tenfold peak under the autoscalers of the manifests, simulated: replicas, latency, what is refused.

`hpa` and `keda` are the rules, pure; `fleet` is the queue and the workers; `day` is the load.
"""
