"""The settings to search and their values."""

from __future__ import annotations

import pytest

from gpuworker.settings import WorkerSettings
from redbatch.tune.command import is_valid
from redbatch.tune.search_space import (
    DEFAULTS,
    Machine,
    Setting,
    default_of,
    describe_candidate,
    neighbours,
    search_settings,
)
from redbatch.tune.settings import TUNABLE_SETTINGS

LAPTOP = Machine("cpu", 4, has_tokens=True)
GPU = Machine("cuda:0", 16, has_tokens=True)


@pytest.mark.parametrize("machine", [LAPTOP, GPU, Machine("cpu", 1, has_tokens=True)])
def test_each_setting_has_its_default_among_its_values(machine: Machine) -> None:
    """Each setting has its default among its values exactly once: the search starts there."""
    assert all(setting.values.count(None) == 1 for setting in search_settings(machine, 100, TUNABLE_SETTINGS))


def values(machine: Machine, name: str, budget_ms: float = 100.0) -> tuple[str | None, ...]:
    """Returns the values of one setting."""
    return next(
        (setting.values for setting in search_settings(machine, budget_ms, TUNABLE_SETTINGS) if setting.name == name),
        (),
    )


def test_tokens_and_runners_depend_on_the_device() -> None:
    """A GPU runs one large batch at a time, so tokens and runners depend on the device."""
    assert max(int(value or 0) for value in values(LAPTOP, "max_batch_tokens")) < 16_384
    assert "8192" in values(GPU, "max_batch_tokens")
    assert values(LAPTOP, "runners") == ("1", "2", None)
    assert values(GPU, "runners") == (None, "2")


def test_a_model_without_tokens_has_fewer_settings() -> None:
    """Null and simulated models count a text as one token and run one batch, so they have fewer settings."""
    names = {setting.name for setting in search_settings(Machine("cpu", 4, has_tokens=False), 100, TUNABLE_SETTINGS)}
    assert names == {"max_batch_size", "max_batch_wait_ms"}


def test_a_long_wait_is_not_tried() -> None:
    """A fixed wait that is much of the budget is not tried; the adaptive one is, whatever the budget."""
    assert values(LAPTOP, "max_batch_wait_ms", budget_ms=20)[-1] == "5"
    assert {"auto", "0"} - {default_of("max_batch_wait_ms")} <= set(values(LAPTOP, "max_batch_wait_ms", budget_ms=1))


def test_only_named_settings_are_searched() -> None:
    """Only the named settings are searched; a setting with one value is not."""
    assert [setting.name for setting in search_settings(LAPTOP, 100, ["max_batch_size"])] == ["max_batch_size"]
    assert search_settings(Machine("cpu", 1, has_tokens=True), 100, ["runners"]) == ()


def test_neighbours_go_in_one_direction_to_the_end() -> None:
    """Neighbours include the default, as no difference; other settings stay."""
    setting = Setting("size", ("1", None, "3"))
    other = ("wait", "5")
    assert list(neighbours(frozenset({other, ("size", "1")}), setting, 1)) == [
        frozenset({other}),
        frozenset({other, ("size", "3")}),
    ]
    assert list(neighbours(DEFAULTS, setting, -1)) == [frozenset({("size", "1")})]


def test_a_choice_is_named_by_its_differences() -> None:
    """A candidate is named by its differences from the defaults, in a fixed order."""
    assert describe_candidate(DEFAULTS) == "defaults"
    assert describe_candidate(frozenset({("b", "2"), ("a", "1")})) == "a=1, b=2"


def test_batch_sizes_go_up_to_the_maximum_of_the_setting() -> None:
    """The claim window follows each of them; with a window that the user has set, larger ones are not tried."""
    sizes = [int(value or WorkerSettings().max_batch_size) for value in values(LAPTOP, "max_batch_size")]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 10_000 < 2 * sizes[-1]
    assert all(WorkerSettings(max_batch_size=size).effective_claim_window >= 4 * size for size in sizes)
    assert is_valid({"claim_window": "128"}, "max_batch_size", "128")
    assert not is_valid({"claim_window": "128"}, "max_batch_size", "256")
    assert is_valid({"claim_window": "128"}, "max_batch_size", None)
