"""Environment variables that have no effect: misspelt ones, and names that other systems have for a setting.

Values are never read, except to recognize the variables that Kubernetes sets for Services: they may be secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from pydantic_settings import BaseSettings

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.bench.settings import BenchSettings
from redbatch.tune.settings import TuneSettings
from shared.process.settings import PREFIX, variable_of

CHECKED = "REDBATCH_VARIABLES_CHECKED"
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
    *("REDBATCH_REGISTRY", "REDBATCH_SECRETS", "REDBATCH_VERSION", "REDBATCH_WORKER_VERSION"),  # of swarm/stack.yml
    CHECKED,
}
TEST_PREFIX = "REDBATCH_TEST_"

RENAMED: Mapping[str, str] = {
    "GATEWAYS": "use redbatch up --gateways",
    "MAX_BATCH_SIZE": "set REDBATCH_MAX_BATCH_SIZE",
    "MAX_BATCH_WAIT_MS": "set REDBATCH_MAX_BATCH_WAIT_MS",
    "MAX_QUEUE_SIZE": "set REDBATCH_MAX_QUEUE_INPUTS, which counts inputs",
    "MAX_WAIT_MS": "set REDBATCH_MAX_BATCH_WAIT_MS",
    "MAX_WAIT_TIME": "set REDBATCH_MAX_BATCH_WAIT_MS, in milliseconds",
    "MODEL_NAME": "set REDBATCH_MODEL",
    "NUM_WORKERS": "use redbatch up --workers, or set REDBATCH_DEVICES=all for an engine on each GPU",
    "QUEUE_SHARDS": "remove it: a queue has no shards, and no lock that they would relieve",
    "REDIS_URL": "set REDBATCH_REDIS_URL",
    "REQUEST_TIMEOUT_S": "set REDBATCH_REQUEST_TIMEOUT_MS, in milliseconds",
    "TIMEOUT_SECONDS": "set REDBATCH_MAX_BATCH_WAIT_MS, in milliseconds",
    "WORKERS": "use redbatch up --workers",
}
"""What to do instead, by the name in another system; with the prefix REDBATCH_ it is understood too."""

BARE_NAMES = (
    *("MAX_BATCH_SIZE", "MAX_BATCH_WAIT_MS", "MAX_WAIT_MS", "MODEL_NAME", "NUM_WORKERS", "QUEUE_SHARDS", "REDIS_URL"),
    "REQUEST_TIMEOUT_S",
)
"""The names that are reported without the prefix: the others have too many meanings."""

_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def ineffective_variables(environment: Mapping[str, str], command: str) -> dict[str, str]:
    """Returns the variables that have no effect on any process of Redbatch, with what to do instead.

    Args:
        environment: of the process.
        command: of `redbatch`; those that run no model and no gateway do not report names of other systems.
    """
    if CHECKED in environment:
        return {}
    known = {variable_of(name) for each in SETTINGS for name in each.model_fields} | OTHER_VARIABLES
    found = {name: _advice(name, known) for name in environment if _is_unknown(name, environment[name], known)}
    read = {variable_of(name) for each in SETTINGS_OF_COMMANDS.get(command, ()) for name in each.model_fields}
    for name in BARE_NAMES if read else ():
        right = re.search(rf"{PREFIX}\w+", RENAMED[name])
        if name in environment and (right is None or right[0] in read - environment.keys()):
            found[name] = RENAMED[name]
    return found


def _is_unknown(name: str, value: str, known: AbstractSet[str]) -> bool:
    upper = name.upper()  # pydantic reads variables in any case
    if not upper.startswith(PREFIX) or upper.startswith(TEST_PREFIX) or upper.removesuffix("_FILE") in known:
        return False
    # Kubernetes sets these for a Service whose name begins with redbatch.
    is_service = _SERVICE.search(upper) or (upper.endswith("_PORT") and _SERVICE_URL.match(value))
    return not is_service


def _advice(name: str, known: AbstractSet[str]) -> str:
    plain = name.upper().removeprefix(PREFIX)
    if plain in RENAMED:
        return RENAMED[plain]
    close = difflib.get_close_matches(plain, [each.removeprefix(PREFIX) for each in known - OTHER_VARIABLES], n=1)
    return f"set {PREFIX}{close[0]}" if close else "see redbatch settings for all names"
