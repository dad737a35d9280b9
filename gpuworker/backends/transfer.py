"""The way of a batch onto the device, and of vectors back."""

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
    """What a backend moves tensors with."""

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the features of a batch, their tensors on the device or on their way there."""

    def computed(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Returns what is computed of such features, as float32 in this process's memory."""

    def busy_s(self) -> float:
        """Returns how long the device has computed since this was last asked; 0 where nobody knows."""


class Plain:
    """Copies one after the other, on any device.

    Args:
        device: as torch names it.
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Copies the tensors, where they are not there already."""
        return {
            name: each.to(self._device) if isinstance(each, torch.Tensor) else each for name, each in features.items()
        }

    def computed(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Computes, and copies."""
        found: Vector = compute(dict(features)).float().cpu().numpy()
        return found

    def busy_s(self) -> float:
        """Nobody knows."""
        return 0.0


class Streams:
    """Copies beside what a GPU computes: from pinned memory, on a stream for each way.

    All batches compute on one stream, each handed in whole: while one computes, the next is handed in, and nothing is
    between them.

    Args:
        device: of CUDA.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._in, self._compute, self._out = (torch.cuda.Stream(device) for _ in range(3))
        self._order, self._clock = threading.Lock(), threading.Lock()
        self._ran: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def to_device(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Starts the copies; `arrived` is when they are done."""
        with torch.cuda.stream(self._in):
            moved = {
                name: each.pin_memory().to(self._device, non_blocking=True) if isinstance(each, torch.Tensor) else each
                for name, each in features.items()
            }
            return moved | {"arrived": self._in.record_event()}

    def computed(self, features: Mapping[str, Any], compute: Compute) -> Vector:
        """Hands in the batch, and sleeps until its vectors are here."""
        given = dict(features)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._order, torch.cuda.stream(self._compute):
            self._compute.wait_event(given.pop("arrived"))
            for each in given.values():
                if isinstance(each, torch.Tensor):
                    each.record_stream(self._compute)  # its memory is free when this, too, is over
            began.record()
            found = compute(given).float()
            ended.record()
        with self._clock:
            self._ran.append((began, ended))
        return self._to_host(found, ended)

    def _to_host(self, tensor: torch.Tensor, computed: torch.cuda.Event) -> Vector:
        with torch.cuda.stream(self._out):
            self._out.wait_event(computed)
            found = torch.empty(tensor.shape, dtype=torch.float32, pin_memory=True)
            found.copy_(tensor, non_blocking=True)
            tensor.record_stream(self._out)
            here = torch.cuda.Event(blocking=True)
            here.record()
        here.synchronize()
        vectors: Vector = found.numpy()
        return vectors

    def busy_s(self) -> float:
        """Adds up what the device's own clock says of the batches that have ended, each from first to last kernel.

        No two of them run at once. What the device waits within a batch, for the next kernel to be handed in, counts.
        """
        total_ms = 0.0
        with self._clock:
            while self._ran and self._ran[0][1].query():
                began, ended = self._ran.popleft()
                total_ms += began.elapsed_time(ended)
        return total_ms / MS_PER_S


def transfer_of(device: str) -> Transfer:
    """Returns what suits a device."""
    return Streams(device) if device.startswith("cuda") else Plain(device)
