"""Comparison of Redbatch with other servers: `make bench-peers`.

Each peer has a folder with `requirements.txt`, which pins its environment, and `serve.py`, which runs only in that
environment. All these servers share `models`. The other modules create environments, start servers and measure them.
"""
