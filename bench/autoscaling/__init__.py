"""Simulation of a day with a tenfold peak under the autoscalers of k8s/: replicas, latency, refusals, cost.

The rules: `hpa` and `keda` are those of Kubernetes and of KEDA, both pure. `metrics_server` is the CPU usage that the
HPA sees. `manifests` reads the autoscalers' settings from k8s/.

The cluster: `traffic` is the day's load, `fifo_queue` a queue of many requests, `deployment` the pods of a Deployment,
`worker_profile` the latency and occupancy of one worker at each load, `cluster` the gateways, the queue and the workers
together. `jobs` is the number of workers that a bulk job asks for. `startup_times` measures how long real processes
take to be ready.

The runs: `scenarios` are the simulated clusters, `experiments` the autoscaler settings that are compared, `figures` the
figures of a day, `report` the tables of docs/autoscaling.md.
"""
