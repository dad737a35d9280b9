"""Entry point of `redbatch up`: checks the settings, opens the port and runs the cluster."""

from __future__ import annotations

import asyncio

from setproctitle import setproctitle

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.exit_codes import report_failure
from redbatch.up.child_spec import SettingValues, with_up_defaults
from redbatch.up.cluster import Cluster, ClusterSize
from redbatch.up.local_redis import LocalRedisError
from shared.process.listener import ListenError, listen, raise_open_file_limit
from shared.process.settings import read_settings


def run(size: ClusterSize, overrides: SettingValues) -> int:
    """Runs a cluster until SIGINT or SIGTERM. Returns 0; 1 if it cannot run; 130 after a second signal."""
    setproctitle("redbatch up")
    settings = with_up_defaults(overrides)
    gateway, worker = read_settings(GatewaySettings, settings), read_settings(WorkerSettings, settings)
    raise_open_file_limit()
    try:
        with listen(gateway.host, gateway.port) as listener:
            cluster = Cluster(size, settings, gateway, worker)
            return asyncio.run(cluster.run(listener))
    except (ListenError, LocalRedisError) as error:
        return report_failure(str(error))
