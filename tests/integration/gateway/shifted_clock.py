"""Runs a program of the cluster with its wall clock put wrong by SHIFT_S seconds: `python -m ... ` with SHIFTED."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time

NAME = "tests.integration.gateway.shifted_clock"


def main() -> None:
    """Puts the clock wrong, says what it shows, and becomes the program."""
    shift_s = float(os.environ["SHIFT_S"])
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + shift_s
    time.time_ns = lambda: right_ns() + int(shift_s * 1e9)
    sys.stdout.write(json.dumps({"msg": "clock", "shown": time.time(), "right": right()}) + "\n")
    sys.stdout.flush()
    runpy.run_module(os.environ["SHIFTED"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
