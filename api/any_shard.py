"""Reads what each shard has: API keys, and the list of queues. Any Redis that answers will do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def first_answer(
    calls: Iterable[Coroutine[Any, Any, Answer]],
    is_enough: Callable[[Answer], bool] = lambda _: True,
    is_better: Callable[[Answer], bool] = lambda _: True,
) -> Answer:
    """Returns the first answer that is enough, or else one that is better than others, if there is one.

    The other calls go on: to cancel them would close their connections.

    Raises:
        RedisUnreachableError: no call was answered; the reason of the first shard.
    """
    tasks = [asyncio.create_task(each) for each in calls]
    for each in tasks:
        each.add_done_callback(_retrieve)
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            if each.exception() is None and is_enough(each.result()):
                return each.result()
    answers = [each.result() for each in tasks if each.exception() is None]
    return max(answers, key=is_better) if answers else tasks[0].result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception of a call whose answer is not needed, so that asyncio does not warn."""
    if not task.cancelled():
        task.exception()
