"""Tests on Docker engines that the suite starts: `make test-engine`, as root.

The images are built by the repository's own Dockerfile, and run alone and on a Swarm of three nodes, under load.
Engines have separate data, sockets and network namespaces, so an engine that already runs on the machine is not used.

machine        what the tests need of the machine, and why they are skipped
workspace      the folder with the data of the engines, which is kept for the next run
commands       commands with their output in the error
engine         one Docker engine
pip_mirror     the configuration of pip in the base image
bases          the images that the Dockerfiles start from, made of Debian's packages
images         the images of Redbatch
network        a bridge, and a network namespace for each node
name_server    a name server for each node
swarm          three engines that form a Swarm, and the registry between them
documented     the commands of the documents
stack          the stack as this machine can run it, deployed by the commands of the documents
balancer       haproxy in front of the gateways
load           clients whose answers are compared with the vectors of their texts
pods           containers of pods, as Kubernetes would make them
scenes         a fault under load, and the table of what was seen
"""
