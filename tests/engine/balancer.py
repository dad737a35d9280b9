"""haproxy in front of the gateways, in a container on their network.

It finds their tasks by the name `tasks.gateway`, which Swarm resolves to those that are healthy and not about to stop.
That is also how Swarm's own load balancer chooses; it needs IPVS in the kernel.
"""

from __future__ import annotations

from tests.engine.bases import HAPROXY
from tests.engine.network import address_of
from tests.engine.swarm import Swarm

PORT = 8080
NAME = "balancer"
CONFIG = "redbatch-test-balancer"

# As on Kubernetes, gateways without Redis leave after seconds (4, there 9): requests wait for it meanwhile. A gateway
# that is gone costs a second attempt, and its name is gone a moment later.
CONFIGURATION = """\
resolvers docker
    nameserver docker 127.0.0.11:53
    timeout resolve 200ms
    timeout retry 200ms
    hold valid 200ms
    hold obsolete 0s
    hold nx 0s
defaults
    mode http
    timeout connect 1s
    timeout client 330s
    timeout server 330s
    retries 5
    option redispatch 1
listen gateways
    bind :8080
    option httpchk GET /readyz?exclude=worker
    default-server check inter 500ms fall 8 rise 1
    server-template gateway 8 tasks.gateway:8080 resolvers docker resolve-opts allow-dup-ip init-addr none
"""


def start_balancer(swarm: Swarm) -> str:
    """Starts it on the manager; returns the URL at which it can be reached from the tests."""
    engine = swarm.manager
    path = engine.folder / "haproxy.cfg"
    path.write_text(CONFIGURATION, encoding="utf-8")
    path.chmod(0o644)
    engine.docker("create", "--name", NAME, "--publish", f"{PORT}:8080", "--volume", f"{path}:/haproxy.cfg:ro",
                  HAPROXY, "/haproxy.cfg")  # fmt: skip
    engine.docker("network", "connect", "redbatch_inner", NAME)
    engine.docker("start", NAME)
    return f"http://{address_of(0)}:{PORT}"
