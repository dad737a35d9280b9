"""A log of the requests of a run, in columns of numbers: appending costs little CPU time while the load runs."""

from __future__ import annotations

from array import array

from redbatch.bench.answers import OK

MAX_CODES = 100
OTHER = "other"


class RequestLog:
    """One row per finished request, including the warmup. Times are in seconds since the measurement began.

    `code_index` is an index into `codes`; index 0 is a good answer. `errors` counts all that failed, and `measured` and
    `measured_errors` only what was due in the measurement.
    """

    def __init__(self) -> None:
        self.start_s = array("d")
        self.latency_s = array("d")
        self.code_index = array("B")
        self.sent_bytes = array("Q")
        self.received_bytes = array("Q")
        self.codes = [OK]
        self.errors = self.measured = self.measured_errors = 0
        self._index = {OK: 0}

    def __len__(self) -> int:
        """Returns the number of finished requests."""
        return len(self.start_s)

    def add(self, start_s: float, latency_s: float, code: str, sent_bytes: int, received_bytes: int) -> None:
        """Appends a request: the time at which it was due, its latency, and its outcome."""
        index = self._index.get(code)
        if index is None:
            index = self._new_code(code)
        self.errors += index > 0
        if start_s >= 0:
            self.measured += 1
            self.measured_errors += index > 0
        self.start_s.append(start_s)
        self.latency_s.append(latency_s)
        self.code_index.append(index)
        self.sent_bytes.append(sent_bytes)
        self.received_bytes.append(received_bytes)

    def _new_code(self, code: str) -> int:
        """Adds a code. The limit keeps a server that returns a new code with each answer from filling the memory."""
        if len(self.codes) >= MAX_CODES:
            code = OTHER
        if code not in self._index:
            self._index[code] = len(self.codes)
            self.codes.append(code)
        return self._index[code]
