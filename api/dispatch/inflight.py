"""One request in flight: its entries, their refs in the stream, and the replies so far."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable

from api.dialects.request import InferenceRequest
from api.dispatch.admission import memory_full_error
from api.memory_budget import HeldMemory, size_of_reply, unbounded
from shared.error_tree import error_from_code
from shared.errors import (
    InputFailedError,
    InternalError,
    InvalidRequestError,
    RedbatchError,
    TooLargeError,
)
from shared.messages import EMBED_ALL, PREDICT, VECTOR_OPS, Failure, NewEntry, Ref, Reply, Values, Vectors

MAX_VALUES_BYTES = 64 * 2**20
"""Maximum size of an answer that is not vectors: its size is unknown before the replies arrive."""

MAX_LOGGED_CHARS = 1_000
"""A worker's message that is longer is not logged: a model may have any number of prompts, which it names."""

RESUBMIT_INTERVAL_S = 1.0
"""Minimum time between two submits of a lost entry: while Redis is lost again and again, queues must not grow."""


class InFlight:
    """A request that this gateway holds until it is answered.

    Attributes:
        request_id: the gateway's own id, 128 random bits, which names the reply key.
        new_entries: its entries, by position.
        deadline: on the event loop's clock, s.
        lane: index of keys.LANES.
        tenant: the client's tenant.
        traceparent: of the span that its entries name, "" without one.
        uses_bell: whether its replies are announced on the bell; otherwise a waiter pops its reply key.
        submitted: whether any of its entries has been added to the stream.
        was_accepted: whether metrics have counted its inputs, on a shard that is lost.
        num_coalesced: how many requests of clients it is (api.dispatch.coalescer).
        reconcile_on_submit: whether it is to be reconciled once its entries are in the stream: a connection broke
            while some of them were on their way there.
        revision: the model revision that all its vectors must have; "" while any is accepted.
        is_pinned: whether the client has chosen the revision, so that no other may answer.
        answer: the replies to all entries in the order of their positions, or the error. In a `partial` request,
            failures are replies like others.

    Args:
        request: the client's request.
        memory: what it holds of the gateway's, which its replies add to; None: no bound.
        on_mixed_revisions: called when all replies are there and their vectors are of several revisions.
    """

    def __init__(
        self,
        request_id: str,
        new_entries: Iterable[NewEntry],
        deadline: float,
        request: InferenceRequest,
        memory: HeldMemory | None = None,
        on_mixed_revisions: Callable[[InFlight], None] = lambda _: None,
    ) -> None:
        self.request_id = request_id
        self.new_entries = {entry.position: entry for entry in new_entries}
        self.deadline = deadline
        self.lane, self.tenant = request.lane, request.tenant
        self._op, self._partial, self._indices = request.op, request.partial, request.indices
        self._memory = memory or unbounded()
        self._on_mixed_revisions = on_mixed_revisions
        self.revision, self.is_pinned = request.revision, bool(request.revision)
        self.traceparent = ""
        self.uses_bell = True
        self.submitted, self.was_accepted = False, request.was_accepted
        self.reconcile_on_submit = False
        self.num_coalesced = 1
        self.answer: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._refs: dict[int, Ref] = {}
        self._former_refs: dict[int, list[Ref]] = {}
        """Those of entries that were lost: another master, or one that comes back, may still have them."""
        self._resubmit_at: dict[int, float] = {}
        self._replies: dict[int, Reply] = {}
        self._values_bytes = 0
        self._unrun: set[int] = set()

    @property
    def done(self) -> bool:
        """Whether the request is answered, or no client waits for the answer any more."""
        return self.answer.done()

    def place(self, position: int, ref: Ref) -> None:
        """Records the ref of an entry in the stream."""
        self.submitted = True
        self._refs[position] = ref

    def remove_lost(self, position: int, ref: Ref, now: float = 0.0) -> NewEntry | None:
        """Removes the ref of an entry that is no longer in the stream; returns the entry if it has to be added again.

        Returns None if the entry has a reply, or if its ref is another by now. `now` is on the event loop's clock.
        """
        if self._refs.get(position) is not ref:
            return None
        self._former_refs.setdefault(position, []).append(self._refs.pop(position))
        self._resubmit_at[position] = now + RESUBMIT_INTERVAL_S
        return None if position in self._replies else self.new_entries[position]

    def restore_lost(self, position: int) -> None:
        """Takes back `remove_lost`: the entry was not added again, and it is unknown whether it is lost."""
        self._resubmit_at.pop(position, None)
        if position not in self._refs and (former := self._former_refs.get(position)):
            self._refs[position] = former.pop()

    def resubmit_wait_s(self, position: int, now: float) -> float:
        """Returns how long an entry may not be added again yet, s; 0 if it may. `now`: the event loop's clock."""
        return max(0.0, self._resubmit_at.get(position, now) - now)

    def is_unplaced(self, position: int) -> bool:
        """Whether an entry has neither a reply nor a known ref in the stream."""
        return position not in self._refs and position not in self._replies

    @property
    def has_unplaced_entries(self) -> bool:
        """Whether any entry has neither a reply nor a known ref in the stream."""
        return any(map(self.is_unplaced, self.new_entries))

    def outstanding(self) -> dict[int, Ref]:
        """Returns the known refs of the entries that are in the stream and have no reply, by position."""
        return {position: ref for position, ref in self._refs.items() if position not in self._replies}

    def sought_refs(self) -> list[tuple[int, Ref]]:
        """Returns the refs of `outstanding` with their positions, each before those under which the entry was lost."""
        refs = self.outstanding().items()
        if not self._former_refs:
            return list(refs)
        return [(position, each) for position, ref in refs for each in (ref, *self._former_refs.get(position, ()))]

    def leftover_refs(self) -> list[Ref]:
        """Returns all refs under which an entry may be in a stream although no client waits for it any more."""
        leftover = list(self.outstanding().values())
        for former in self._former_refs.values():
            leftover += former
        return leftover

    def accept(self, reply: Reply) -> bool:
        """Accepts a reply, or drops it; returns whether it was accepted. The first for a position counts.

        A reply that does not match the request is dropped too: it belongs to another request.
        """
        entry = self.new_entries.get(reply.position)
        fits = entry is not None and entry.n == reply.n and reply.request_id == self.request_id and self._matches(reply)
        if entry is not None and fits and isinstance(reply, Failure) and reply.origin.unrun:
            self._unrun.add(reply.position)  # also of a request that the first of its entries has failed
        if self.done or not fits or reply.position in self._replies:
            return False
        if isinstance(reply, Failure) and not self._partial:
            self.fail(self._error_of(reply))
            return True
        # vectors were reserved before
        if self._op not in VECTOR_OPS and not self._memory.grow(size_of_reply(reply)):
            self.fail(memory_full_error(random.random()))  # noqa: S311 - spreads clients
            return True
        self._replies[reply.position] = reply
        if isinstance(reply, Values):
            self._values_bytes += sum(map(len, reply.values))
            if self._values_bytes > MAX_VALUES_BYTES:
                self._replies.clear()
                self.fail(
                    TooLargeError(f"The answer takes more than {MAX_VALUES_BYTES >> 20} MiB: send fewer at once.")
                )
                return True
        if len(self._replies) == len(self.new_entries):
            if len(self.new_entries) == 1:
                self.answer.set_result([reply])
            elif len(self.revisions()) > 1:
                self._on_mixed_revisions(self)
            else:
                self._complete(self._replies.values())
        return True

    def revisions(self) -> Counter[str]:
        """Returns the number of inputs that have results, by model revision.

        Outputs of a function do not count: it may not be called twice for one input. Nor do values of a worker that
        reports no revision with them.
        """
        counts: Counter[str] = Counter()
        for reply in self._replies.values():
            if isinstance(reply, Vectors) or (isinstance(reply, Values) and reply.revision and self._op != PREDICT):
                counts[reply.revision] += reply.n
        return counts

    def restrict_to_revision(self, revision: str) -> tuple[list[NewEntry], list[Ref]]:
        """Keeps only the results of one revision, which all others must have as well.

        Returns:
            The entries to run again, and their refs in the stream, as far as these are known.
        """
        self.revision = revision
        rerun = [
            entry
            for position, entry in self.new_entries.items()
            if (position in self._refs and position not in self._replies)
            or (isinstance(reply := self._replies.get(position), Vectors | Values) and reply.revision != revision)
        ]
        for entry in rerun:
            reply = self._replies.pop(entry.position, None)
            if isinstance(reply, Values):
                self._values_bytes -= sum(map(len, reply.values))
            if reply is not None and self._op not in VECTOR_OPS:
                self._memory.shrink(self._memory.num_bytes - size_of_reply(reply))
        old_refs = [self._refs.pop(entry.position) for entry in rerun if entry.position in self._refs]
        for entry in rerun:
            old_refs += self._former_refs.pop(entry.position, [])
        return rerun, old_refs

    def fail(self, error: RedbatchError) -> None:
        """Answers with an error, unless the request is answered."""
        if not self.done:
            self.answer.set_exception(error)

    def expire(self, error: RedbatchError) -> None:
        """Answers a request whose deadline has passed: with its replies if it is `partial`, else with the error.

        A `partial` request without any usable reply gets the error as well.
        """
        if self.done or not self._partial or all(isinstance(each, Failure) for each in self._replies.values()):
            self.fail(error)
            return
        if len(counts := self.revisions()) > 1:
            self.restrict_to_revision(counts.most_common(1)[0][0])
        late = [each for position, each in self.new_entries.items() if position not in self._replies]
        failures = [Failure(self.request_id, each.position, each.n, error.code, error.message) for each in late]
        self._complete([*self._replies.values(), *failures])

    @property
    def unrun_tokens(self) -> int:
        """The tokens of the entries that a worker has refused before any input of them ran."""
        return sum(self.new_entries[position].cost for position in self._unrun)

    def close(self) -> None:
        """Ends the request, as no client waits for its answer any more.

        An exception that is there already is retrieved, so that asyncio does not warn of it.
        """
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()

    def _error_of(self, failure: Failure) -> RedbatchError:
        error = error_from_code(failure.code, self._message_of(failure))
        error.log_fields = _log_fields(failure)
        if failure.origin.is_loggable and failure.message.isprintable() and len(failure.message) <= MAX_LOGGED_CHARS:
            error.quoted = ""
        if isinstance(error, InvalidRequestError):
            error.too_long = failure.too_long
        return error

    def _message_of(self, failure: Failure) -> str:
        """Returns the message for a client, which names the input at fault if that is known and there are several."""
        is_single = not self._indices and sum(entry.n for entry in self.new_entries.values()) == 1
        if failure.input_index is None or is_single:
            return failure.message
        index = failure.position + failure.input_index
        return f"Input {self._indices[index] if self._indices else index}: {failure.message}"

    def _matches(self, reply: Reply) -> bool:
        """Whether a reply is a failure, or of the kind that the operation returns and of the revision it is for."""
        if self.is_pinned and not isinstance(reply, Failure) and reply.revision != self.revision:
            # Values of an older worker have none; it runs no entry that is for another revision.
            return isinstance(reply, Values) and not reply.revision
        if isinstance(reply, Vectors):
            return (self._op in VECTOR_OPS and not reply.counts) or (self._op == EMBED_ALL and bool(reply.counts))
        return isinstance(reply, Failure) or self._op not in (*VECTOR_OPS, EMBED_ALL)

    def _complete(self, replies: Iterable[Reply]) -> None:
        ordered = sorted(replies, key=lambda reply: reply.position)
        if len({each.dim for each in ordered if isinstance(each, Vectors)}) > 1:
            self.fail(InternalError("Workers of different models serve this queue."))
        else:
            self.answer.set_result(ordered)


def _log_fields(failure: Failure) -> dict[str, str]:
    """Returns what a log says about a failure beside its message: the worker that has answered, and where to look.

    The log of a worker has the traceback of each exception of its model, but not what a class refuses.
    """
    worker, exception = failure.origin.worker, failure.origin.exception
    see = "redbatch dead list" if failure.origin.is_dead else ""
    if exception and failure.code == InputFailedError.code:
        see = see or "the log of this worker"
    return {"error": exception, "worker": worker, "see": see}
