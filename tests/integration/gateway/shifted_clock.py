"""Runs the program SHIFTED_MODULE of the cluster with its wall clock shifted by SHIFT_S seconds."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time

MODULE = "tests.integration.gateway.shifted_clock"


def main() -> None:
    """Shifts the clock, writes the shifted and the correct time as a log line, and runs the program."""
    shift_s = float(os.environ["SHIFT_S"])
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + shift_s
    time.time_ns = lambda: true_time_ns() + int(shift_s * 1e9)
    sys.stdout.write(json.dumps({"msg": "clock", "shifted": time.time(), "true": true_time()}) + "\n")
    sys.stdout.flush()
    runpy.run_module(os.environ["SHIFTED_MODULE"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
