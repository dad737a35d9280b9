"""Runs a number of cases against a cluster, and checks what they leave behind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.fuzz.exchange import Exchange
from tests.fuzz.fuzzed_cluster import FuzzedCluster
from tests.fuzz.grammar import MAX_HEAD_FIELDS, MAX_URL_BYTES, Case, cases
from tests.fuzz.routes import JOB

MAX_OPEN = 12
"""Maximum number of connections that are open at a time."""

ROUND = 500
"""Maximum examples of Hypothesis in a round: it remembers all of these, so one long round would take gigabytes."""

WARM_UP = 3_000
"""Cases after which memory is measured for the first time: caches and pools are full by then."""

MAX_GROWTH_BYTES = 16 * 2**20
"""Maximum growth of a process from there to the end, whatever the number of cases."""


RARE = [
    Case(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"u" * MAX_URL_BYTES)),
    Case(b"GET /health HTTP/1.1\r\n%b\r\n" % (b"A: b\r\n" * (MAX_HEAD_FIELDS + 1))),
]
"""Cases of 414 and 431, in each round: generated ones are so rare that some campaigns have none."""


class GrowthError(AssertionError):
    """A process has more memory than the cases explain."""


@dataclass
class Tally:
    """What a campaign has done so far: cases, and answers by status."""

    num_cases: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    began_s: float = field(default_factory=time.monotonic)
    growth_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def took_s(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self.began_s


def run_campaign(
    cluster: FuzzedCluster,
    num_cases: int,
    *,
    shows: Callable[[Tally], None] = lambda _: None,
    first_seed: int | None = None,
    keeps_failures: bool = True,
) -> Tally:
    """Runs cases until there were `num_cases`, and returns what they have led to.

    Args:
        cluster: with the gateway.
        num_cases: minimum number of cases.
        shows: called after each round.
        first_seed: of the first round, the next ones have the numbers after it; None: a random one for each.
        keeps_failures: whether a failing example is made small, and stored in .hypothesis for the next run.

    Raises:
        AssertionError: a case fails, and its smallest form is printed; memory has grown; or connections stay open.
    """
    tally = Tally()
    options = _options(num_cases, keeps_failures=keeps_failures)
    first_bytes: dict[str, int] = {}
    number = 0
    while tally.num_cases < num_cases:
        cluster.create_job()
        test = _round(cluster, tally, options)
        (test if first_seed is None else seed(first_seed + number)(test))()
        number += 1
        if tally.num_cases >= min(WARM_UP, num_cases // 3) and not first_bytes:
            first_bytes = cluster.memory_bytes()
        shows(tally)
    cluster.check_idle()
    cluster.check()
    last_bytes = cluster.memory_bytes()
    tally.growth_bytes = {name: last_bytes[name] - size for name, size in first_bytes.items()}
    if max(tally.growth_bytes.values()) > MAX_GROWTH_BYTES:
        raise GrowthError(f"{tally.num_cases} cases: memory has grown by {tally.growth_bytes} bytes")
    return tally


def _options(num_cases: int, *, keeps_failures: bool) -> settings:
    return settings(
        max_examples=min(ROUND, max(1, num_cases // 20)),
        deadline=None,
        database=DirectoryBasedExampleDatabase(".hypothesis/examples") if keeps_failures else None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, *((Phase.reuse, Phase.shrink) if keeps_failures else ())),
    )


def _round(cluster: FuzzedCluster, tally: Tally, options: settings) -> Callable[[], None]:
    @options
    @example(batch=RARE)
    @given(batch=st.lists(cases(), min_size=1, max_size=MAX_OPEN))
    def each_answer_is_right(batch: list[Case]) -> None:
        exchanges = [Exchange(case, {JOB: cluster.job}) for case in batch]
        try:
            for each in exchanges:
                each.start(cluster.gateway.port)
            for each, case in zip(exchanges, batch, strict=True):
                try:
                    tally.answers.update(answer.status for answer in each.finish())
                except AssertionError as error:
                    error.add_note(f"The case: {case}")
                    raise
        finally:
            for each in exchanges:
                each.close()
            cluster.check()
        tally.num_cases += len(batch)

    return each_answer_is_right
