"""Prints the probe's vector as `SentenceTransformer.encode` gives it: `python -m bench.peers.probe`. Imports torch."""

from __future__ import annotations

import json
import sys

from bench.peers.models import load
from bench.peers.protocol import PROBE

if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps([float(value) for value in load("minilm")([PROBE])[0]]) + "\n")
