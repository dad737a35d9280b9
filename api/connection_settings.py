"""Settings of a gateway about connections: proxies in front, heads of requests, and how many may be open."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network

from pydantic import Field, field_validator

from api.settings_groups import ConnectionLimits, HeadLimits, UnsentLimits
from shared.settings import QueueSettings


def parse_networks(text: str) -> list[IPv4Network | IPv6Network]:
    """Returns the networks in a list with commas. Raises ValueError: one of them is none."""
    return [_parse_network(part.strip()) for part in text.split(",") if part.strip()]


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    with suppress(ValueError):
        return ip_network(text)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("it takes addresses or networks such as 10.0.0.0/8, separated by commas") from None
    raise ValueError(f"{text} is an address in the network {network}: write that, or the address without /")


class ConnectionSettings(QueueSettings):
    """What a gateway allows its clients' connections."""

    trusted_proxies: str = Field(
        default="",
        title="Networks of the proxies in front",
        description="Networks of the proxies in front, such as 10.0.0.0/8,fd00::/8: a request from one of these has "
        "the last address of its X-Forwarded-For that is not in them. Empty: that of the connection.",
    )
    keep_alive_s: int = Field(
        default=75,
        ge=1,
        le=3_600,
        title="How long an idle connection stays open",
        description="How long an idle connection stays open: longer than the load balancer keeps it (usually 60 s), so "
        "that it closes the connection, not the gateway.",
    )
    max_head_bytes: int = Field(
        default=64 * 2**10,
        ge=2**10,
        le=2**20,
        title="Maximum size of a request's head",
        description="Maximum size of a request's head: its first line and its header fields; above it: 431.",
    )
    max_head_fields: int = Field(
        default=100,
        ge=10,
        le=10_000,
        title="Maximum header fields in a request",
        description="Maximum number of header fields in a request; above it: 431.",
    )
    max_url_bytes: int = Field(
        default=8 * 2**10, ge=2**8, le=2**20, description="Maximum length of a URL, in bytes; above it: 414."
    )
    max_heads_bytes: int = Field(
        default=16 * 2**20,
        ge=2**20,
        title="Maximum total size of unanswered heads",
        description="Maximum total size of the heads of requests that are not answered yet, of connections with more "
        "than 4 KiB of these; so all heads have at most this and 4 KiB for each connection. Above it, the address with "
        "the most bytes of unfinished heads loses its oldest one, or if there is none, the new head is refused: 503.",
    )
    max_unfinished_heads_bytes: int = Field(
        default=2**20,
        ge=2**20,
        title="Maximum total size of unfinished heads",
        description="Maximum total size of those heads in max_heads_bytes that have not arrived completely, or whose "
        "request is answered while its body still arrives. Above it, the address with the most bytes of these loses "
        "its oldest one: 503.",
    )
    head_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=3_600,
        title="Maximum time for a head to arrive",
        description="Maximum time for a request's head to arrive: from the connect, and later from its first byte or, "
        "if that comes before the previous answer, from the answer. After it, the connection is closed.",
    )
    max_connections: int = Field(
        default=8_192,
        ge=1,
        le=1_000_000,
        description="Maximum number of open connections; at most 75 % of the process's limit of open files. A new one "
        "closes the one that has waited longest for a request; if all have one, only probes are answered.",
    )
    max_address_ratio: float = Field(
        default=0.5,
        gt=0,
        le=1,
        title="Fraction of connections for one address",
        description="Maximum fraction of these connections from one address (IPv6: from one /64 network), except "
        "from those in trusted_proxies.",
    )

    send_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=3_600,
        title="Maximum time a client receives nothing",
        description="Maximum time in which a client receives no byte of an answer that waits for it. After it, the "
        "connection is closed. A client that reads slowly has any time.",
    )
    max_connection_unsent_bytes: int = Field(
        default=128 * 2**20,
        ge=2**16,
        title="Maximum unread bytes of an answer",
        description="Maximum bytes of an answer that its client has not read; above it, the connection is closed. A "
        "connection's next request begins after its answer is sent.",
    )
    max_unsent_bytes: int = Field(
        default=128 * 2**20,
        ge=2**16,
        title="Maximum unread bytes of all answers",
        description="The same bound for the answers of all connections; above it, the tenant with the most of these "
        "bytes for its weight, or without API keys the address, loses the connection that has received nothing for the "
        "longest. One connection may always have max_connection_unsent_bytes.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        for network in parse_networks(value):
            if network.prefixlen == 0:
                raise ValueError(f"{network} trusts every client, who may then choose its address")
        return value

    @property
    def trusted_networks(self) -> list[str]:
        """The networks of proxies, and those of IPv4 also as a socket of IPv6 reports them."""
        networks = parse_networks(self.trusted_proxies)
        ipv4 = [each for each in networks if each.version == 4]  # noqa: PLR2004 - of the protocol
        mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in ipv4]
        return [*map(str, networks), *mapped]

    @property
    def head_limits(self) -> HeadLimits:
        """Bounds of a request's head."""
        return HeadLimits(self.max_head_bytes, self.max_head_fields, self.max_url_bytes)

    @property
    def unsent_limits(self) -> UnsentLimits:
        """Bounds of answers that clients have not read."""
        return UnsentLimits(self.max_connection_unsent_bytes, self.max_unsent_bytes, self.send_timeout_s)

    def connection_limits(self, max_connections: int) -> ConnectionLimits:
        """Returns the bounds of connections, of which the process may have `max_connections` at most."""
        per_address = max(1, int(max_connections * self.max_address_ratio))
        return ConnectionLimits(
            max_connections,
            per_address,
            self.max_heads_bytes,
            self.max_unfinished_heads_bytes,
            self.head_timeout_s,
        )
