"""Environment variables that have no effect: misspelt ones, and names that other systems have for a setting.

Values are never read, except to recognize the variables that Kubernetes sets for Services: they may be secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pydantic_settings import BaseSettings

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.bench.settings import BenchSettings
from redbatch.tune.settings import TuneSettings
from shared.process.settings import PREFIX, variable_of

VARIABLES_CHECKED = "REDBATCH_VARIABLES_CHECKED"
"""Set for the children of `up`, which has already reported the variables."""

SETTINGS: tuple[type[BaseSettings], ...] = (GatewaySettings, WorkerSettings, BenchSettings, TuneSettings)
SETTINGS_OF_COMMANDS: Mapping[str, tuple[type[BaseSettings], ...]] = {
    "gateway": (GatewaySettings,),
    "worker": (WorkerSettings,),
    "up": (GatewaySettings, WorkerSettings),
    "tune": (WorkerSettings, TuneSettings),
    "settings": (GatewaySettings, WorkerSettings),
}
"""The commands that report names of other systems, with the settings that they read."""

OTHER_VARIABLES = {
    "REDBATCH_API_KEY",  # of `redbatch embed`
    *("REDBATCH_REGISTRY", "REDBATCH_SECRETS", "REDBATCH_VERSION"),  # of swarm/stack.yml
    *("REDBATCH_WORKER_ORDER", "REDBATCH_WORKER_VERSION"),  # of swarm/stack.yml
    "REDBATCH_COMPOSE_PORT",  # of compose.yaml
    VARIABLES_CHECKED,
}
TEST_PREFIX = "REDBATCH_TEST_"


class ForeignName(NamedTuple):
    """A name that other systems have for a setting.

    `setting` is ours, or "", and `note` how it differs. `instead` is what to do if that is not to set it. If
    `is_distinct`, the name is reported without the prefix REDBATCH_ too: the others have too many meanings.
    """

    name: str
    setting: str = ""
    note: str = ""
    instead: str = ""
    is_distinct: bool = False

    @property
    def advice(self) -> str:
        """What to do."""
        return self.instead or f"set {variable_of(self.setting)}{self.note}"


FOREIGN_NAMES = (
    ForeignName("GATEWAYS", instead="use redbatch up --gateways"),
    ForeignName("MAX_BATCH_SIZE", "max_batch_size", is_distinct=True),
    ForeignName("MAX_BATCH_WAIT_MS", "max_batch_wait_ms", is_distinct=True),
    ForeignName("MAX_QUEUE_SIZE", "max_queue_inputs", ", which counts inputs"),
    ForeignName("MAX_WAIT_MS", "max_batch_wait_ms", is_distinct=True),
    ForeignName("MAX_WAIT_TIME", "max_batch_wait_ms", ", in milliseconds"),
    ForeignName("MODEL_NAME", "model", is_distinct=True),
    ForeignName(
        "NUM_WORKERS",
        "devices",
        instead="use redbatch up --workers, or set REDBATCH_DEVICES=all for an engine on each GPU",
        is_distinct=True,
    ),
    ForeignName(
        "QUEUE_SHARDS",
        instead="remove it: there is no lock that shards would relieve; REDBATCH_REDIS_SHARDS is a list of URLs",
        is_distinct=True,
    ),
    ForeignName("REDIS_URL", "redis_url", is_distinct=True),
    ForeignName("REQUEST_TIMEOUT_S", "request_timeout_ms", ", in milliseconds", is_distinct=True),
    ForeignName("TIMEOUT_SECONDS", "max_batch_wait_ms", ", in milliseconds"),
    ForeignName("WORKERS", instead="use redbatch up --workers"),
)

_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def ineffective_variables(environment: Mapping[str, str], command: str) -> dict[str, str]:
    """Returns the variables that have no effect on any process of Redbatch, with what to do instead.

    Args:
        environment: of the process.
        command: of `redbatch`; those that run no model and no gateway do not report names of other systems.
    """
    if VARIABLES_CHECKED in environment:
        return {}
    known = {variable_of(name) for each in SETTINGS for name in each.model_fields} | OTHER_VARIABLES
    found = {name: _advice(name, known) for name in environment if _is_unknown(name, environment[name], known)}
    read = {variable_of(name) for each in SETTINGS_OF_COMMANDS.get(command, ()) for name in each.model_fields}
    for each in FOREIGN_NAMES if read else ():
        is_unset = not each.setting or variable_of(each.setting) in read - environment.keys()
        if each.is_distinct and each.name in environment and is_unset:
            found[each.name] = each.advice
    return found


def _is_unknown(name: str, value: str, known: AbstractSet[str]) -> bool:
    upper = name.upper()  # pydantic reads variables in any case
    is_known = upper in known or upper.removesuffix("_FILE") in known
    if not upper.startswith(PREFIX) or upper.startswith(TEST_PREFIX) or is_known:
        return False
    # Kubernetes sets these for a Service whose name begins with redbatch.
    is_service = _SERVICE.search(upper) or (upper.endswith("_PORT") and _SERVICE_URL.match(value))
    return not is_service


def _advice(name: str, known: AbstractSet[str]) -> str:
    plain = name.upper().removeprefix(PREFIX)
    for each in FOREIGN_NAMES:
        if each.name == plain:
            return each.advice
    close = difflib.get_close_matches(plain, [each.removeprefix(PREFIX) for each in known - OTHER_VARIABLES], n=1)
    return f"set {PREFIX}{close[0]}" if close else "see redbatch settings for all names"
