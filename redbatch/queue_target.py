"""The queue that a command works on: finds it, connects to it, and reports connection errors."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.up.run_file import NoUpError, find_up
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.model_names import DEFAULT_MODEL, queue_slug
from shared.process.log_text import printable_line
from shared.process.settings import read_file_variables, read_settings, variable_of
from shared.producer import QueueStats, list_queues, queue_stats
from shared.queue_connections import QueueConnections
from shared.redis_errors import KeyMovedError
from shared.redis_url import mask_password
from shared.settings import QueueSettings
from shared.shard_connections import ShardConnection, connect_shards, try_shards

AnswerT = TypeVar("AnswerT")


def find_queue(target: QueueTarget) -> tuple[tuple[str, ...], str]:
    """Returns the URL of each Redis, and the name of a queue there. Raises NoUpError: see `find_up`."""
    read_file_variables(os.environ)
    if not target.names_redis:
        running = find_up(target.up)
        return running.redis_urls, target.queue or running.queue
    name = target.queue or queue_slug(DEFAULT_MODEL)
    # Both variables are an error as for all processes; an option overrides them.
    if target.redis_url in {None, os.environ.get(variable_of("redis_url"))}:
        return read_settings(QueueSettings).shard_urls, name
    given = read_settings(QueueSettings, {"redis_url": target.redis_url, "redis_shards": ""})
    return given.shard_urls, name


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """The URL of Redis, the name of the queue, and the port of a running `redbatch up` from the command line.

    Without a URL, REDBATCH_REDIS_SHARDS has those of all shards. If that is not set, the URL and a missing name come
    from the running `up` that has the port, or from the only one. Otherwise the default of the name is the queue of the
    default model.
    """

    redis_url: str | None
    queue: str | None = None
    up: int | None = None

    @property
    def names_redis(self) -> bool:
        """Whether a URL or the variable names the Redis, and no running `up` is looked for."""
        return self.redis_url is not None or (self.up is None and bool(os.environ.get(variable_of("redis_shards"))))


class ShardAnswers(NamedTuple, Generic[AnswerT]):
    """The answers of shards, and why the others gave none, by the number of the shard."""

    answers: dict[int, AnswerT]
    problems: dict[int, str]


async def ask_shards(
    shards: Sequence[ShardConnection], ask: Callable[[ShardConnection], Awaitable[AnswerT]]
) -> ShardAnswers[AnswerT]:
    """Asks all shards at once. Raises RedisUnreachableError: none answers."""
    answers, errors = await try_shards(shards, ask)
    if errors and not answers:
        raise list(errors.values())[-1]
    return ShardAnswers(answers, {number: printable_line(each.log_message) for number, each in errors.items()})


def report_left_out(what: str, shards: Sequence[ShardConnection], problems: Mapping[int, str]) -> int:
    """Prints the shards that do not answer; returns the exit code of a command that changes something on all."""
    for number, problem in problems.items():
        report_failure(f"the {what} of shard {number}, {shards[number].place}, are left out: {problem}")
    return EXIT_FAILED if problems else 0


ChooseUrls = Callable[[tuple[str, ...]], Sequence[str]]
ShardsTask = Callable[[Sequence[ShardConnection], Keys], Coroutine[object, object, int]]


def run_on_shards(
    target: QueueTarget,
    purpose: str,
    task: ShardsTask,
    on_interrupt: int = EXIT_FAILED,
    *,
    choose: ChooseUrls = lambda urls: urls,
) -> int:
    """Runs a task on a connection to each shard of the queue; prints what failed; returns the exit code.

    A queue that the target names must exist in the first Redis that answers. `purpose` becomes part of the names of the
    connections. `on_interrupt` is the exit code after Ctrl-C. `choose` returns the URLs that matter of those of all
    shards.
    """
    try:
        all_urls, name = find_queue(target)
    except NoUpError as error:
        return report_failure(str(error))
    urls = choose(all_urls)
    alone = {"redis_shards": "", "queue_shards": "1"}
    settings = [read_settings(QueueSettings, {"redis_url": url, **alone}) for url in urls]
    places = ", ".join(map(mask_password, urls))

    try:
        return asyncio.run(_run(settings, name, purpose, task, must_exist=target.queue is not None))
    except KeyboardInterrupt:
        return on_interrupt
    except RedisUnreachableError as error:
        return report_failure(f"{places}: {printable_line(error.log_message)}")
    except ValueError as error:
        return report_failure(f"{places}: {error}")


async def _run(
    settings: Sequence[QueueSettings], name: str, purpose: str, task: ShardsTask, *, must_exist: bool
) -> int:
    connections = [QueueConnections(each, name, f"redbatch-cli-{os.getpid()}") for each in settings]
    shards = connect_shards(connections, purpose)
    try:
        if must_exist and (problem := await _find_problem_in(shards, connections[0].keys)):
            return report_failure(problem)
        return await task(shards, connections[0].keys)
    finally:
        for each in connections:
            await each.close()


async def _find_problem_in(shards: Sequence[ShardConnection], keys: Keys) -> str:
    """Does as `_find_problem`, of the shards that answer. Raises RedisUnreachableError: none does."""
    problems: list[str] = []
    for number, shard in enumerate(shards, start=1):
        try:
            problems.append(await _find_problem(shard.connection, keys))
        except RedisUnreachableError:
            if number == len(shards) and not problems:
                raise
        if "" in problems:
            return ""
    return problems[0]


async def _find_problem(connection: RedisConnection, keys: Keys) -> str:
    """Returns that there is no such queue, with those there are; empty if there is one.

    A queue without an announcement, whose workers ended long ago, exists as long as Redis has anything of it.
    """
    try:
        announced = sorted(await list_queues(connection))
    except KeyMovedError:  # on a server of a Redis Cluster that has the queue, but not the list of all queues
        announced = []
    if keys.queue in announced or _exists(await queue_stats(connection, keys)):
        return ""
    close = difflib.get_close_matches(keys.queue, announced, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    choices = f"the queues are {', '.join(announced)}" if announced else "no worker has announced one"
    return f"there is no queue {keys.queue}: {choices}{hint}"


def _exists(stats: QueueStats) -> bool:
    return bool(stats.epoch or stats.entries or stats.workers or stats.dead_letters or stats.open_jobs)
