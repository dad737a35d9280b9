"""`make bench-rerank`: pairs per second through Redbatch, offline, through Infinity, and by `CrossEncoder.predict`.

python -m bench.rerank [--quick] [--documents 100] [--clients 1,8,32]
    [--only redbatch,offline,infinity,predict,pinned]

The model has MiniLM's transformer and a head with random weights. A request has 100 documents of 100 to 300 tokens. All
ways run in each round, and each round begins with another. Each answer is checked against the logits of its pairs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.child_process import run_module
from bench.cluster import clean_environment
from bench.failures import FAILURES, reason
from bench.figures import Row
from bench.flags import parse_names
from bench.peers import environment
from bench.peers.server import PeerError
from bench.publication import Publication, publish, start_run
from bench.rerank import report, servers
from bench.rerank.load import Result, encode_tasks, send
from bench.rerank.requests import DOCUMENTS, INFINITY, REDBATCH, Form, RerankRequest, WrongScoreError, make_requests
from bench.rounds import Round
from gpuworker.ipc.engine_process import engine_environment

NAME = "rerank"
REQUESTS = {1: 6, 8: 16, 32: 32}
"""Number of requests that a number of clients sends."""

QUICK, QUICK_DOCUMENTS = {1: 2, 8: 8}, 10
OFFLINE_REQUESTS = PREDICT_REQUESTS = 4
PINNED_REQUESTS = 5
ROUNDS = 3
TIMEOUT_S = 1_800.0
WAYS = ("redbatch", "offline", "infinity", "predict", "pinned")
QUICK_HELP = "A short test run of one round; writes no document."
PARTIAL_HELP = "If some are missing, no document is written."
CHANGED_HELP = f"If these are not {DOCUMENTS}, no document is written."

Rates = dict[tuple[str, int], Result]
"""The results of a round, by the way and the number of clients; 0 without a server."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all rounds share.

    Attributes:
        model: the folder of the model.
        requests: those that any measurement sends, in order.
        scores: the logits of each request's pairs.
        programs: the programs of Infinity's environment.
        plan: number of requests by number of clients.
    """

    model: Path
    requests: Sequence[RerankRequest]
    scores: Sequence[Sequence[float]]
    programs: Path
    plan: Mapping[int, int]

    @property
    def num_documents(self) -> int:
        """Documents of a request."""
        return len(self.requests[0].documents)


def main(
    quick: Annotated[bool, typer.Option("--quick", help=QUICK_HELP)] = False,
    documents: Annotated[int | None, typer.Option(min=2, help=f"Documents of a request. {CHANGED_HELP}")] = None,
    clients: Annotated[str, typer.Option(help=f"Numbers of clients. {PARTIAL_HELP}")] = "",
    only: Annotated[str, typer.Option(help=f"Ways to run the pairs. {PARTIAL_HELP}")] = ",".join(WAYS),
) -> None:
    """Measures, and writes the tables of the document."""
    run_start, rounds = start_run(), 1 if quick else ROUNDS
    plan = QUICK if quick else REQUESTS
    if clients:
        plan = {number: plan.get(number, number) for number in map(int, clients.split(","))}
    chosen = parse_names("--only", only, WAYS)
    ways = [way for way in WAYS if way in chosen]
    num_documents = documents or (QUICK_DOCUMENTS if quick else DOCUMENTS)
    is_partial = quick or bool(clients) or len(ways) < len(WAYS) or num_documents != DOCUMENTS
    with tempfile.TemporaryDirectory(prefix="redbatch-rerank-") as folder:
        try:
            setup = prepare(Path(folder), plan, num_documents, ways)
            rows = [row for number in range(rounds) for row in measure(setup, ways, Round(number, rounds))]
        except (WrongScoreError, PeerError, environment.EnvironmentBuildError, *FAILURES) as error:
            sys.exit(f"bench-rerank: {reason(error)}")
    publish(Publication(NAME, report.table, is_partial), run_start, rounds, rows)


def prepare(folder: Path, plan: Mapping[int, int], num_documents: int, ways: Sequence[str]) -> Setup:
    """Saves the model, and computes the scores of all requests.

    Raises:
        ModuleError: that failed.
        EnvironmentBuildError: Infinity cannot be installed.
    """
    programs = environment.make("infinity", print) if "infinity" in ways else Path()
    print("building the model, and computing the scores of all pairs", flush=True)
    run_module("scoring_model", [str(folder)], clean_environment({}), TIMEOUT_S)
    number = max(*(plan.values() if {"redbatch", "infinity"} & set(ways) else ()), PINNED_REQUESTS, 1)
    requests = make_requests(number, num_documents)
    return Setup(folder, requests, run_predict(folder, number, num_documents)["scores"], programs, plan)


def measure(setup: Setup, ways: Sequence[str], round_: Round) -> list[Row]:
    """Runs all ways once, beginning with another in each round, and returns their figures."""
    results: Rates = {}
    pinned: dict[int, Result] = {}
    steps: dict[str, Callable[[], None]] = {
        "redbatch": lambda: results.update(_serve(setup, "redbatch")),
        "offline": lambda: results.update({("offline", 0): run_packed(setup.model, setup.num_documents)}),
        "infinity": lambda: results.update(_serve(setup, "infinity")),
        "predict": lambda: results.update({("predict", 0): _time_predict(setup.model, setup.num_documents)}),
        "pinned": lambda: pinned.update(compare_pinned(setup)),
    }
    for way in round_.rotate(ways):
        print(f"round {round_.number + 1}: {way}", flush=True)
        steps[way]()
    return [*rate_rows(results), *pinned_rows(pinned)]


def _serve(setup: Setup, way: str) -> Rates:
    form, results = {"redbatch": REDBATCH, "infinity": INFINITY}[way], Rates()
    probe = encode_tasks(INFINITY, setup.requests[:1], setup.scores[:1])[0]
    start = {
        "redbatch": partial(servers.redbatch, setup.model),
        "infinity": partial(servers.infinity, setup.model, setup.programs, probe),
    }[way]
    with start() as url:
        _send(setup, url, form, 1, 1)  # the first batches allocate memory
        for clients, number in setup.plan.items():
            results[way, clients] = result = _send(setup, url, form, number, clients)
            print(f"  {clients} clients: {result.pairs_per_s:.1f} pairs/s, p50 {result.p50_s:.2f} s", flush=True)
    return results


def _send(setup: Setup, url: str, form: Form, number: int, clients: int) -> Result:
    tasks = encode_tasks(form, setup.requests[:number], setup.scores[:number])
    return send(url, form, tasks, clients)


def run_predict(model: Path, number: int, num_documents: int) -> dict[str, Any]:
    """Returns the seconds of each request by `CrossEncoder.predict`, and its logits. Raises ModuleError."""
    # The library's default: only an engine's backend turns it off.
    variables = {"TOKENIZERS_PARALLELISM": "true"} | clean_environment({})
    output = run_module(
        "rerank.offline", ["predict", str(model), str(number), str(num_documents)], variables, TIMEOUT_S
    )
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _time_predict(model: Path, num_documents: int) -> Result:
    seconds = run_predict(model, PREDICT_REQUESTS, num_documents)["seconds"]
    return Result(sum(seconds), seconds, PREDICT_REQUESTS * num_documents)


def run_packed(model: Path, num_documents: int) -> Result:
    """Returns the fastest way to run the pairs of some requests without a server. Raises ModuleError."""
    arguments = ["packed", str(model), str(OFFLINE_REQUESTS), str(num_documents)]
    output = run_module("rerank.offline", arguments, engine_environment(clean_environment({})), TIMEOUT_S)
    seconds: dict[str, float] = json.loads(output.splitlines()[-1])
    for name, each in seconds.items():
        print(f"  {name}: {OFFLINE_REQUESTS * num_documents / each:.1f} pairs/s", flush=True)
    return Result(min(seconds.values()), [], OFFLINE_REQUESTS * num_documents)


def compare_pinned(setup: Setup) -> dict[int, Result]:
    """Returns the times of single requests to one worker on one core, and to two on a core each.

    Both clusters are up, and get the requests in turns.
    """
    latencies_s: dict[int, list[float]] = {1: [], 2: []}
    tasks = encode_tasks(REDBATCH, setup.requests[:PINNED_REQUESTS], setup.scores[:PINNED_REQUESTS])
    with servers.pinned_clusters(setup.model, tuple(latencies_s)) as urls:
        for number, url in urls.items():
            send(url, REDBATCH, tasks[:number], 1)  # warms up
        for task in tasks:
            for number, url in urls.items():
                latencies_s[number] += send(url, REDBATCH, [task], 1).latencies_s
    return {number: Result(sum(each), each, len(each) * setup.num_documents) for number, each in latencies_s.items()}


def rate_rows(results: Rates) -> list[Row]:
    """Returns the figures of a round, with their ratios to each other."""
    rows = []
    for (way, clients), result in results.items():
        figures = {"pairs_per_s": result.pairs_per_s}
        if result.latencies_s:
            figures["p50_s"] = result.p50_s
        others = {"share_of_offline": ("offline", 0), "ratio_to_predict": ("predict", 0)}
        others["ratio_to_infinity"] = ("infinity", clients)
        for name, other in others.items():
            if way == "redbatch" and other in results:
                figures[name] = result.pairs_per_s / results[other].pairs_per_s
        rows.append(Row(NAME, {"table": report.SERVED, "how": report.HOWS[way], "clients": clients}, figures))
    return rows


def pinned_rows(results: Mapping[int, Result]) -> list[Row]:
    """Returns the times of single requests by the number of workers, and their ratios to that of one."""
    return [
        Row(
            NAME,
            {"table": report.PINNED, "workers": number},
            {"p50_s": result.p50_s, "ratio_to_one": result.p50_s / results[1].p50_s},
        )
        for number, result in results.items()
    ]


if __name__ == "__main__":
    typer.run(main)
