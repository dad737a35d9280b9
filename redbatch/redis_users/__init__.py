"""`redbatch k8s secrets` and `redbatch swarm secrets`: the Redis users of a cluster, their rights and passwords.

It runs in the process of the command.

- acl: the ACL file of Redis.
- cli: the commands with their options and help texts.
- command: implementation of the commands.
- k8s: Kubernetes manifests.
- passwords: new passwords and URLs.
- rules: the users and their rights.
- swarm: shell script for a Docker Swarm.
"""
