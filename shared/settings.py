"""Settings on which gateways and workers must agree for the contract in Redis to hold."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.option_words import ValueForm
from shared.redis_password import read_password
from shared.redis_url import (
    Kind,
    describe_address,
    find_url_problem,
    has_password,
    parse_url,
    shard_url,
    split_urls,
)
from shared.tls import Tls

QUEUE_PATTERN = r"^[a-z0-9._-]{1,64}$"
QUEUE_WORDS = "a name of 1 to 64 lower-case letters, digits, dots, dashes and underscores"
QueueName = Annotated[str, StringConstraints(pattern=QUEUE_PATTERN), ValueForm(QUEUE_WORDS)]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:%-]*$"), ValueForm("an IP address or a host name")]
Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,128}$"),
    ValueForm("a name of 1 to 128 letters, digits, dots, dashes and underscores"),
]


class QueueSettings(BaseSettings):
    """Settings common to gateways and workers. Each field is `REDBATCH_<NAME>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True, extra="ignore")

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        title="URL of the cluster's Redis",
        description="URL of the cluster's Redis (redis://, rediss:// or unix://), of sentinels (redis+sentinel://, then"
        " HOST,HOST,HOST/MASTER/0) or of a Redis Cluster (redis+cluster://HOST,HOST); in a name or password, / ? # and"
        " % are percent-encoded. When not set, `redbatch gateway` and `redbatch worker` take that "
        "of your running `redbatch up`, if there is one.",
    )
    queue_shards: int = Field(
        default=1,
        ge=1,
        le=64,
        title="Shards of each queue in a Redis Cluster",
        description="With redis+cluster://: number of shards of each queue, which are spread over the slots of the "
        "cluster: one for each master. Requests go on while one of them is away. All gateways and workers have the "
        "same number.",
    )
    redis_sentinel_password: str = Field(
        default="",
        repr=False,
        title="Password of the sentinels",
        description="For redis+sentinel://: password of the sentinels; the URL has that of Redis.",
    )
    redis_shards: str = Field(
        default="",
        title="URLs of the Redis of several shards",
        description="Instead of redis_url: the URLs of two or more Redis, separated by commas, each with a shard of "
        "each queue. Requests go on while one of them is away. All gateways and workers have the same list.",
    )
    redis_password_file: str | None = Field(
        default=None,
        title="File with Redis' password",
        description="File with the password of Redis, which is read again for each new connection: for tokens that "
        "expire. The URL then has the user, and no password.",
    )
    redis_tls_ca: str | None = Field(
        default=None,
        title="For rediss://: file with trusted CAs",
        description="For rediss://: file with the certificate authorities to trust (PEM). Default: the system's. "
        "Files are read again for each new connection.",
    )
    redis_tls_cert: str | None = Field(
        default=None,
        title="For rediss://: client certificate file",
        description="For rediss://: file with the client certificate for Redis (PEM).",
    )
    redis_tls_key: str | None = Field(
        default=None,
        validate_default=True,
        title="For rediss://: file with its private key",
        description="For rediss://: file with the private key of the client certificate (PEM).",
    )
    redis_timeout_s: float = Field(
        default=2.0,
        ge=0.5,  # a new connection, or a Redis that is busy, may take longer than less
        le=60,
        title="Timeout of a call or connection to Redis",
        description="Timeout of a call to Redis, and of a connection to it. Raise it for a Redis that is far away, or "
        "often busy for longer.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        title="Minimum level of logs",
        description="Minimum level of logs: debug, info, warning or error.",
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto",
        title="Form of log lines: json, text or auto",
        description="Form of log lines: json, or text for people. auto: text on a terminal, otherwise json.",
    )
    tracing: Literal["off", "otlp"] = Field(
        default="off",
        title="Traces of requests: otlp exports them",
        description="Traces of requests: otlp exports them to a collector, configured by OTEL_* (extra: tracing).",
    )

    @field_validator("redis_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if problem := find_url_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("redis_shards")
    @classmethod
    def _check_shards(cls, value: str) -> str:
        urls = split_urls(value)
        for number, url in enumerate(urls, start=1):
            if problem := find_url_problem(url):
                raise ValueError(f"URL {number}: {problem}")
        if len(set(urls)) < len(urls):
            raise ValueError("a URL is there twice")
        if len(urls) == 1:
            raise ValueError("it takes two or more URLs: for one Redis, set redis_url")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.redis_shards and "redis_url" in self.model_fields_set:
            raise ValueError("redis_url and redis_shards exclude each other")
        url = parse_url(self.redis_url)
        if self.queue_shards > 1 and (self.redis_shards or url.kind is not Kind.CLUSTER or url.shard[1] > 1):
            raise ValueError("queue_shards is for a redis_url of a whole Redis Cluster (redis+cluster://)")
        urls = list(map(parse_url, self.shard_urls))
        if self.redis_sentinel_password and all(each.kind is not Kind.SENTINEL for each in urls):
            raise ValueError("redis_sentinel_password is for redis+sentinel://, and no URL begins with that")
        return self

    @field_validator("redis_password_file")
    @classmethod
    def _check_password_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        name = "redis_shards" if info.data.get("redis_shards") else "redis_url"
        urls = split_urls(info.data.get(name) or "")
        if any(has_password(each) for each in urls):
            raise ValueError(f"{name} has a password too; use one of them")
        read_password(value)
        return value

    @field_validator("redis_tls_ca", "redis_tls_cert", "redis_tls_key")
    @classmethod
    def _check_readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        url = info.data.get("redis_url")
        urls = split_urls(info.data.get("redis_shards", "")) or ((url,) if url is not None else ())
        if urls and not any(parse_url(each).has_tls for each in urls):
            raise ValueError("no URL of Redis begins with rediss:// or another scheme with TLS, so TLS is off")
        try:
            with open(value, "rb") as file:  # noqa: PTH123 - as OpenSSL will
                file.read(1)
        except OSError as error:
            raise ValueError(f"it cannot be read ({os.strerror(error.errno or 0)})") from None
        return value

    @field_validator("redis_tls_key")
    @classmethod
    def _check_pair(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Runs last, when the other files are known to be readable."""
        if not {"redis_tls_ca", "redis_tls_cert"} <= info.data.keys():
            return value  # one of them has been rejected already
        ca, cert = info.data["redis_tls_ca"], info.data["redis_tls_cert"]
        if (cert is None) != (value is None):
            raise ValueError("redis_tls_cert and redis_tls_key go together")
        if ca is not None:
            _check(Tls(ca), "redis_tls_ca holds no certificate")
        if cert is not None:
            _check(Tls(ca, cert, value), "redis_tls_cert and redis_tls_key are not a certificate and its private key")
        return value

    @property
    def shards(self) -> tuple[Self, ...]:
        """These settings for each shard alone, with its URL as `redis_url`; without shards, these."""
        urls = split_urls(self.redis_shards)
        if (number := self.queue_shards) > 1:
            urls = tuple(shard_url(self.redis_url, each, number) for each in range(number))
        alone = {"redis_shards": "", "queue_shards": 1}
        return tuple(self.model_copy(update={"redis_url": url, **alone}) for url in urls) or (self,)

    @property
    def shard_urls(self) -> tuple[str, ...]:
        """The URL of each shard."""
        return tuple(each.redis_url for each in self.shards)

    @property
    def redis_address(self) -> str:
        """Host and port of each Redis, its sentinels or servers of its cluster, or the path of its socket, for logs."""
        return ", ".join(map(describe_address, self.shard_urls))

    @property
    def redis_tls(self) -> Tls:
        """The TLS files for Redis; used if the URL begins with rediss://."""
        return Tls(self.redis_tls_ca, self.redis_tls_cert, self.redis_tls_key)


def _check(tls: Tls, message: str) -> None:
    try:
        tls.context()
    except (OSError, ValueError):
        raise ValueError(message) from None
