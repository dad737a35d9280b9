"""What the tests need of the machine, and why they are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

COMMANDS = {
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "docker-registry": "docker-registry",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "tar": "tar",
}
"""The commands that are necessary, each with its Debian package."""

CODENAME = "bookworm"
"""The Debian release of the base images. The Python of this process is copied into them, so it must run there."""

KERNEL_PARTS = {
    "bridge": "ip link add probe type bridge",
    "veth": "ip link add probe type veth",
    "vxlan": "ip link add probe type vxlan id 1 dstport 4789",
    "overlay": "grep -qw overlay /proc/filesystems",
}
"""The parts of the kernel that are necessary, each with a command that fails without it."""

CLIENT = next((path for path in ("/usr/bin/docker",) if os.access(path, os.X_OK)), "docker")
"""The client of Debian's package, which contains BuildKit's part. Others may need a plugin for it."""


def why_not() -> str | None:
    """Returns what keeps an engine from running here, with what to do, or None."""
    if os.geteuid() != 0:
        return "engines need root"
    missing = {package for command, package in COMMANDS.items() if shutil.which(command) is None}
    if missing:
        return f"apt-get install {' '.join(sorted(missing))}"
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    if f"VERSION_CODENAME={CODENAME}" not in release or sys.version_info[:2] != (3, 11):
        return f"the base images contain this Python, which must be a 3.11 of Debian's {CODENAME}"
    lacking = [name for name, command in KERNEL_PARTS.items() if not _works_in_new_network(command)]
    return f"the kernel lacks {', '.join(lacking)}" if lacking else None


def has_virtual_servers() -> bool:
    """Returns whether the kernel has IPVS: virtual IPs of services, and the published ports of a Swarm."""
    subprocess.run(["modprobe", "--quiet", "ip_vs"], check=False, capture_output=True)
    return Path("/proc/net/ip_vs").exists()


def has_ipsec() -> bool:
    """Returns whether the kernel has ESP: encrypted overlay networks."""
    key, digest = "0x" + 16 * "01", "0x" + 20 * "02"
    return _works_in_new_network(
        "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1 mode transport "
        f"enc cbc(aes) {key} auth hmac(sha1) {digest}"
    )


def _works_in_new_network(command: str) -> bool:
    """Returns whether a command succeeds in a new network namespace, which ends with it."""
    return subprocess.run(["unshare", "--net", *command.split()], check=False, capture_output=True).returncode == 0
