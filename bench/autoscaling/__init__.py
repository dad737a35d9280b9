"""A day with a tenfold peak under the autoscalers of k8s/, simulated: replicas, latency, refusals, cost.

`hpa` and `keda` are the rules of Kubernetes and of KEDA, pure, and `usage` is what the former is told of CPU;
`manifests` reads what k8s/ sets of them. `traffic` is the day, `station` what one worker does at a load, `cluster` the
gateways, the queue and the workers; `jobs` says what a job asks for beside that. `starts` measures how long real
processes take to be ready.
"""
