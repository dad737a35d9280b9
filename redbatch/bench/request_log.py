"""What is kept of each request while the load runs: columns of numbers, cheap to add to."""

from __future__ import annotations

from array import array

from redbatch.bench.answers import OK

MAX_CODES = 100
OTHER = "other"


class RequestLog:
    """A row for each finished request, warmup included. Times are seconds since the measuring began."""

    def __init__(self) -> None:
        self.began_s = array("d")
        self.took_s = array("d")
        self.code = array("B")
        self.sent_bytes = array("Q")
        self.received_bytes = array("Q")
        self.codes = [OK]
        self.errors = 0
        self._index = {OK: 0}

    def __len__(self) -> int:
        """How many requests are finished."""
        return len(self.began_s)

    def add(self, began_s: float, took_s: float, code: str, sent_bytes: int, received_bytes: int) -> None:
        """Adds a request: when it was (to be) sent, how long it took, and what became of it."""
        index = self._index.get(code)
        if index is None:
            index = self._new_code(code)
        if index:
            self.errors += 1
        self.began_s.append(began_s)
        self.took_s.append(took_s)
        self.code.append(index)
        self.sent_bytes.append(sent_bytes)
        self.received_bytes.append(received_bytes)

    def _new_code(self, code: str) -> int:
        """A server that makes up a new code for each answer does not fill the memory."""
        if len(self.codes) >= MAX_CODES:
            code = OTHER
        if code not in self._index:
            self._index[code] = len(self.codes)
            self.codes.append(code)
        return self._index[code]
