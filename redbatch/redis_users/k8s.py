"""Kubernetes manifests, the input of `kubectl apply`: a namespace, and the secrets in it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from redbatch.redis_users.passwords import Credentials, RedisAddress


def manifests(namespace: str, credentials: Credentials, redis: RedisAddress) -> str:
    """Returns manifests of the namespace, of the Redis users, and of the credentials of each client of Redis."""
    passwords = credentials.passwords
    urls = {name: redis.url(name, password) for name, password in passwords.items()}
    documents = [_namespace(namespace), users_secret(namespace, credentials.users)]
    documents += [_secret(namespace, f"{name}-redis", {"url": urls[name]}) for name in ("gateway", "worker")]
    if redis.master:
        peers = {name: passwords[name] for name in ("replica", "sentinel")}
        documents.append(_secret(namespace, "redis-peers", peers))
    keda = {"username": "keda", "password": passwords["keda"]} | ({"tls": "enable"} if redis.tls else {})
    documents.append(_secret(namespace, "keda-redis", keda))
    for name in ("ops", "admin"):
        values = {"username": name, "password": passwords[name], "url": urls[name]}
        documents.append(_secret(namespace, f"{name}-redis", values))
    return "---\n".join(documents)


def users_secret(namespace: str, users: str) -> str:
    """Returns the secret with the ACL file, which Redis mounts."""
    return _secret(namespace, "redis-users", {"users.acl": users})


def _namespace(name: str) -> str:
    levels = "".join(f"    pod-security.kubernetes.io/{mode}: restricted\n" for mode in ("enforce", "warn", "audit"))
    return f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {json.dumps(name)}\n  labels:\n{levels}"


def _secret(namespace: str, name: str, values: Mapping[str, str]) -> str:
    # The namespace and values of one line are written as JSON strings, which are valid YAML.
    lines = "".join(f"  {key}: {_scalar(value)}\n" for key, value in values.items())
    return (
        f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {json.dumps(namespace)}\n"
        f"type: Opaque\nstringData:\n{lines}"
    )


def _scalar(value: str) -> str:
    if "\n" not in value:
        return json.dumps(value)
    return "|\n" + "".join(f"    {line}\n" for line in value.splitlines()).removesuffix("\n")
