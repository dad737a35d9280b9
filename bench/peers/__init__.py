"""Redbatch beside other servers: `make bench-peers`.

Each peer has a folder: `requirements.txt`, which pins its environment, and `serve.py`, which runs in it and not here.
`vectors` is what those servers have in common. The rest makes environments, starts servers, and measures them in turn.
"""
