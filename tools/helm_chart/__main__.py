"""Writes helm/redbatch: `make chart`."""

from __future__ import annotations

from tools.helm_chart import chart

if __name__ == "__main__":
    chart.write()
