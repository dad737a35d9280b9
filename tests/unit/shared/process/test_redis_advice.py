"""A process without a Redis says what to do, and says it again until one answers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from shared.process import redis_advice
from shared.process.redis_advice import ADVICE, ADVICE_FOR_DEFAULT, advise_until_redis_answers, warn_of_default_redis

GIVEN = {"redis_url", "model"}


def test_the_default_redis_is_a_warning_only_if_none_was_given() -> None:
    """Otherwise a worker without a cluster would report an unreachable Redis that its user never named."""
    with capture_logs() as lines:
        warn_of_default_redis(GIVEN)
        warn_of_default_redis({"redis_shards", "model"})
        warn_of_default_redis({"model"})
    assert [(line["log_level"], "--redis-url" in line["event"]) for line in lines] == [("warning", True)]
    assert "start `redbatch up`, and then this process again, or give --redis-url" in lines[0]["advice"]


@pytest.mark.parametrize(("names", "advice"), [(GIVEN, ADVICE), ({"model"}, ADVICE_FOR_DEFAULT)])
async def test_the_advice_comes_again_until_redis_answers(
    names: set[str], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever more rarely, with the time that the process has waited; after the first answer, outages have other lines."""
    monkeypatch.setattr(redis_advice, "FIRST_ADVICE_S", 0.01)
    answers = iter([["redis", "engine"], ["redis"], ["engine"]])
    with capture_logs() as lines:
        await advise_until_redis_answers(lambda: next(answers), names)
    assert [(line["waited_s"], line["advice"]) for line in lines] == [(0, advice)] * 2
