"""A driver with two GPUs, for tests of which GPU a process sees: none runs on one."""

from __future__ import annotations

FAKE_DRIVER = """
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
class NVMLError_FunctionNotFound(NVMLError): pass
def nvmlInit(): pass
nvmlShutdown = nvmlInit
def nvmlSystemGetDriverVersion(): return "570.1"
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetMigMode(index): raise NVMLError_NotSupported
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(index): return f"GPU-{index}"
def nvmlDeviceGetName(index): return "NVIDIA H100"
class nvmlDeviceGetMemoryInfo:
    def __init__(self, index): self.total = 80 * 2**30
"""
"""The module `pynvml` on a host with two GPUs."""
