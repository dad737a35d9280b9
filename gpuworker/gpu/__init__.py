"""Which GPU an engine uses, and when. Runs in the worker process.

- devices: the GPUs of this host, and on which devices engines run.
- lease_slots: the slots of a pool of GPUs, and their names and locks.
- lease: one lease of a GPU: acquired, renewed, given back or lost.
- sharing: when an engine may use a GPU: always, with a lease, or for one batch at a time.
"""
