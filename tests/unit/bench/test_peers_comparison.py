"""The best configuration of a peer, the ratios to Redbatch, and the schedule of server runs."""

from __future__ import annotations

from bench.peers.catalogue import MOSEC, PEERS, Configuration
from bench.peers.comparison import CELLS, ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Cell, Run, best_configurations, ratios
from bench.peers.schedule import REDBATCH_CANDIDATES, ServerRun, plan_round, plan_trials
from bench.peers.testbed import Candidate, Windows
from bench.rounds import Round

NULL_1, NULL_64, NULL_256, SHORT, MIXED = CELLS


def run(
    configuration: str, rate: float, *, errors: int = 0, number: int = 1, server: str = "mosec", cell: str = "null-64"
) -> Run:
    """Reserver_runs a run."""
    return Run(number, server, configuration, cell, {"requests_per_s": rate, "errors": float(errors)})


def candidates() -> list[Candidate]:
    """Reserver_runs mosec in all its configurations."""
    return [Candidate(each, MOSEC) for each in MOSEC.configurations]


def test_the_configuration_with_the_highest_rate_is_the_best_of_a_cell() -> None:
    """The best configuration with 64 clients may differ from the best with one."""
    found = best_configurations([run("a", 10), run("b", 20), run("a", 5, cell="null-1"), run("b", 4, cell="null-1")])
    assert found == {("mosec", "null-64"): "b", ("mosec", "null-1"): "a"}


def test_a_configuration_with_failed_requests_is_best_only_if_all_have_them() -> None:
    """Refusals are fast but are no answers: a slower configuration without failures is better."""
    assert best_configurations([run("a", 10), run("b", 20, errors=1)]) == {("mosec", "null-64"): "a"}
    assert best_configurations([run("a", 10, errors=9), run("b", 20, errors=1)]) == {("mosec", "null-64"): "b"}


def test_ratios_are_taken_within_each_round() -> None:
    """Rates of the same round are divided, so that the drift of the machine between rounds cancels out."""
    runs = [
        run(ONE_GATEWAY, 100, server=REDBATCH),
        run("a", 50),
        run(ONE_GATEWAY, 300, server=REDBATCH, number=2),
        run("a", 100, number=2),
    ]
    assert ratios(runs, {("mosec", "null-64"): "a"}) == {("mosec", "null-64"): [2, 3]}


def test_a_round_without_one_of_the_servers_has_no_ratio() -> None:
    """A peer that did not start in one round is compared in the others."""
    runs = [
        run(ONE_GATEWAY, 100, server=REDBATCH),
        run(ONE_GATEWAY, 300, server=REDBATCH, number=2),
        run("a", 100, number=2),
        run("a", 100, number=3),
    ]
    assert ratios(runs, {("mosec", "null-64"): "a"}) == {("mosec", "null-64"): [3]}


def test_only_the_best_configuration_is_compared() -> None:
    """Other configurations measured in the cell have no ratio, nor has a rate of 0."""
    ours = run(ONE_GATEWAY, 100, server=REDBATCH)
    assert ratios([ours, run("a", 50), run("b", 25)], {("mosec", "null-64"): "b"}) == {("mosec", "null-64"): [4]}
    assert ratios([ours, run("a", 0)], {("mosec", "null-64"): "a"}) == {}


def test_with_256_clients_two_gateways_are_compared() -> None:
    """Redbatch's rate is that of two gateways, although one was measured too."""
    runs = [
        run(ONE_GATEWAY, 100, server=REDBATCH, cell="null-256"),
        run(TWO_GATEWAYS, 200, server=REDBATCH, cell="null-256"),
        run("a", 100, cell="null-256"),
    ]
    assert ratios(runs, {("mosec", "null-256"): "a"}) == {("mosec", "null-256"): [2]}


def test_a_peer_is_tried_in_all_its_configurations_on_the_models_it_serves() -> None:
    """Infinity does not serve `null` and runs with the real model only. A single configuration is not tried."""
    found = plan_trials([Candidate(each, peer) for peer in PEERS for each in peer.configurations], CELLS)
    tried = {
        (server_run.candidate.name, server_run.candidate.configuration.name, server_run.cells[0].model)
        for server_run in found
    }
    assert tried == {
        (peer.name, each.name, model)
        for peer in PEERS
        for each in peer.configurations
        for model in peer.models
        if len(peer.configurations) > 1
    }
    assert all(cell.model == server_run.cells[0].model for server_run in found for cell in server_run.cells)


def test_a_round_starts_each_peer_once_per_best_configuration() -> None:
    """A configuration that is best in two cells of a model runs once; one that is best in none does not run."""
    choice = {
        ("mosec", NULL_1.name): "32, 1 ms",
        ("mosec", NULL_64.name): "32, 5 ms",
        ("mosec", NULL_256.name): "32, 5 ms",
        ("mosec", SHORT.name): "64, 10 ms",
        ("mosec", MIXED.name): "64, 10 ms",
    }
    server_runs = plan_round(candidates(), CELLS, choice, Round(0, 1))
    assert [(server_run.candidate.configuration.name, list(server_run.cells)) for server_run in server_runs] == [
        ("32, 5 ms", [NULL_64, NULL_256]),
        ("32, 1 ms", [NULL_1]),
        ("64, 10 ms", [SHORT, MIXED]),
    ]


def test_a_peer_without_a_successful_trial_does_not_run() -> None:
    """It is not started in the rounds."""
    assert plan_round(candidates(), CELLS, {}, Round(0, 1)) == []


def test_redbatch_server_runswith_one_gateway_everywhere_and_with_two_for_256_clients() -> None:
    """This does not depend on the peers."""
    server_runs = plan_round(REDBATCH_CANDIDATES, CELLS, {}, Round(0, 1))
    assert [
        (server_run.candidate.configuration.name, [cell.name for cell in server_run.cells])
        for server_run in server_runs
    ] == [
        (ONE_GATEWAY, ["null-1", "null-64", "null-256"]),
        (TWO_GATEWAYS, ["null-256"]),
        (ONE_GATEWAY, ["short-64", "mixed-64"]),
    ]


def test_a_server_run_estimates_its_duration() -> None:
    """The estimate has a start with a warm-up and, for each cell, the window of its part with its overhead."""
    cells = [Cell("short", "minilm", "short", 64), Cell("mixed", "minilm", "mixed", 64)]
    windows = Windows({"minilm": 1.0}, {"short": 5.0, "mixed": 9.0})
    assert ServerRun(Candidate(Configuration("")), cells).seconds(windows) == 13 + 1 + (5 + 5) + (5 + 9)
