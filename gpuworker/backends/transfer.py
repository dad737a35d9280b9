"""Copies batches to the device, and vectors back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

MS_PER_S = 1000.0


Compute = Callable[[dict[str, Any]], torch.Tensor]


class Transfer(Protocol):
    """Copies tensors to and from a device."""

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the features of a batch, with their tensors on the device or on their way there."""

    def compute(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Returns the result of a computation on such features, as float32 in this process's memory."""

    def busy_s(self) -> float:
        """Returns how long the device has computed since the last call, in s; 0 if it has no clock."""


class SimpleTransfer:
    """Copies and computes one after the other, on any device.

    Args:
        device: as torch names it.
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Copies the tensors that are not on the device already."""
        return {
            name: each.to(self._device) if isinstance(each, torch.Tensor) else each for name, each in features.items()
        }

    def compute(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Computes, and copies the result."""
        vectors: Vector = compute(dict(features)).float().cpu().numpy()
        return vectors

    def busy_s(self) -> float:
        """Returns 0: there is no device clock."""
        return 0.0


class CudaTransfer:
    """Copies while a GPU computes: from pinned memory, on one stream for each direction.

    All batches compute on one stream, and each is submitted as a whole, so that no other work comes between them. With
    two runners the next is submitted while one computes.

    Args:
        device: a CUDA device, as torch names it.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._in, self._compute, self._out = (torch.cuda.Stream(device) for _ in range(3))
        self._submit_lock, self._events_lock = threading.Lock(), threading.Lock()
        self._events: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Starts the copies; adds the event `arrived`, which is recorded after them."""
        with torch.cuda.stream(self._in):
            moved = {
                name: each.pin_memory().to(self._device, non_blocking=True) if isinstance(each, torch.Tensor) else each
                for name, each in features.items()
            }
            return moved | {"arrived": self._in.record_event()}

    def compute(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Submits the batch, and sleeps until its vectors are in this process's memory."""
        inputs = dict(features)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._submit_lock, torch.cuda.stream(self._compute):
            self._compute.wait_event(inputs.pop("arrived"))
            for each in inputs.values():
                if isinstance(each, torch.Tensor):
                    each.record_stream(self._compute)  # its memory is not reused before this stream is done with it
            began.record()
            vectors = compute(inputs).float()
            ended.record()
        with self._events_lock:
            self._events.append((began, ended))
        return self._to_host(vectors, ended)

    def _to_host(self, tensor: torch.Tensor, computed: torch.cuda.Event) -> Vector:
        with torch.cuda.stream(self._out):
            self._out.wait_event(computed)
            copy = torch.empty(tensor.shape, dtype=torch.float32, pin_memory=True)
            copy.copy_(tensor, non_blocking=True)
            tensor.record_stream(self._out)
            arrived = torch.cuda.Event(blocking=True)
            arrived.record()
        arrived.synchronize()
        vectors: Vector = copy.numpy()
        return vectors

    def busy_s(self) -> float:
        """Returns the time, by the device's own clock, of the batches that have ended since the last call, in s.

        Each is from its first to its last kernel; no two batches run at once. The time in which the device waits within
        a batch, for the next kernel to be submitted, counts.
        """
        total_ms = 0.0
        with self._events_lock:
            while self._events and self._events[0][1].query():
                began, ended = self._events.popleft()
                total_ms += began.elapsed_time(ended)
        return total_ms / MS_PER_S


def create_transfer(device: str) -> Transfer:
    """Returns the transfer for a device."""
    return CudaTransfer(device) if device.startswith("cuda") else SimpleTransfer(device)
