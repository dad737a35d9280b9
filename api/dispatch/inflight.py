"""One request on its way: its entries, where they are, and what has come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

from api.dialects.request import Asked
from shared.errors import InternalError, RedbatchError, TooLarge, error_from_code
from shared.messages import EMBED, EMBED_ALL, Draft, Failure, Ref, Reply, Values, Vectors

MOST_VALUES_BYTES = 64 * 2**20
"""Of an answer that is no vectors: nobody knows before how long it will be."""


class InFlight:
    """A request that this gateway holds until it is answered.

    Attributes:
        request_id: the gateway's own id, 128 random bits, which names the reply key.
        drafts: its entries, by position.
        deadline: on the event loop's clock, s.
        lane: index of keys.LANES.
        tenant: who asks.
        traceparent: of the span that its entries name, "" without one.
        rings: whether its replies are announced on the bell; otherwise a waiter pops its key.
        missed: whether it was to be settled while some of its entries were on their way into the stream.
        revision: of the model, that its vectors are to be of; "" as long as any will do.
        answer: the replies to all entries in the order of their positions, or the error. Of a `partial` request
            failures are replies like others.

    Args:
        asked: what the client asks for.
        mixed: told when all has come, and vectors of several revisions are among it.
    """

    def __init__(
        self,
        request_id: str,
        drafts: Iterable[Draft],
        deadline: float,
        asked: Asked,
        mixed: Callable[[InFlight], None] = lambda _: None,
    ) -> None:
        self.request_id = request_id
        self.drafts = {draft.position: draft for draft in drafts}
        self.deadline = deadline
        self.lane, self.tenant = asked.lane, asked.tenant
        self._op, self._partial = asked.op, asked.partial
        self._mixed = mixed
        self.revision = ""
        self.traceparent = ""
        self.rings = True
        self.submitted = False
        self.missed = False
        self.answer: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._refs: dict[int, Ref] = {}
        self._answers: dict[int, Reply] = {}
        self._values_bytes = 0

    @property
    def done(self) -> bool:
        """Whether it is answered, or nobody waits for the answer any more."""
        return self.answer.done()

    def place(self, position: int, ref: Ref) -> None:
        """Notes where an entry is in the stream."""
        self.submitted = True
        self._refs[position] = ref

    def lose(self, position: int, ref: Ref) -> Draft | None:
        """Forgets where an entry was, because it is there no more; returns it if its answer was to come from there."""
        if self._refs.get(position) is not ref:
            return None
        del self._refs[position]
        return None if position in self._answers else self.drafts[position]

    def misses(self, position: int) -> bool:
        """Whether an entry has no answer, and it is not known where it is in the stream."""
        return position not in self._refs and position not in self._answers

    @property
    def unplaced(self) -> bool:
        """Whether there are entries that have no answer, and of which it is not known where they are in the stream."""
        return any(map(self.misses, self.drafts))

    def outstanding(self) -> dict[int, Ref]:
        """Returns the entries that are in the stream, as far as is known, and have no answer."""
        return {position: ref for position, ref in self._refs.items() if position not in self._answers}

    def take(self, reply: Reply) -> bool:
        """Takes a reply; returns whether it was of use. The first for a position counts, any other is dropped.

        A reply that does not fit what was asked is dropped too: it cannot be this request's.
        """
        draft = self.drafts.get(reply.position)
        fits = (
            draft is not None and draft.n == reply.n and reply.request_id == self.request_id and self._is_asked(reply)
        )
        if self.done or not fits or reply.position in self._answers:
            return False
        if isinstance(reply, Failure) and not self._partial:
            self.fail(error_from_code(reply.code, reply.message))
            return True
        self._answers[reply.position] = reply
        if isinstance(reply, Values):
            self._values_bytes += sum(map(len, reply.values))
            if self._values_bytes > MOST_VALUES_BYTES:
                self._answers.clear()
                self.fail(TooLarge(f"The answer takes more than {MOST_VALUES_BYTES >> 20} MiB: send fewer at once."))
                return True
        if len(self._answers) == len(self.drafts):
            if len(self.drafts) > 1 and len(self.revisions()) > 1:
                self._mixed(self)
            else:
                self._complete(self._answers.values())
        return True

    def revisions(self) -> Counter[str]:
        """Returns of how many inputs there are vectors, by their revision."""
        found: Counter[str] = Counter()
        for reply in self._answers.values():
            if isinstance(reply, Vectors):
                found[reply.revision] += reply.n
        return found

    def keep(self, revision: str) -> tuple[list[Draft], list[Ref]]:
        """Keeps the vectors of one revision alone, which all others are to be of as well.

        Returns:
            The entries that are to be run for that, and where those of them were in the stream, as far as is known.
        """
        self.revision = revision
        again = [
            draft
            for position, draft in self.drafts.items()
            if (position in self._refs and position not in self._answers)
            or (isinstance(reply := self._answers.get(position), Vectors) and reply.revision != revision)
        ]
        for draft in again:
            self._answers.pop(draft.position, None)
        were = [self._refs.pop(draft.position) for draft in again if draft.position in self._refs]
        return again, were

    def fail(self, error: RedbatchError) -> None:
        """Answers with an error, unless there is an answer."""
        if not self.done:
            self.answer.set_exception(error)

    def expire(self, error: RedbatchError) -> None:
        """Answers with what there is, if part of it will do; otherwise with an error. Its time is over."""
        if self.done or not self._partial or all(isinstance(each, Failure) for each in self._answers.values()):
            self.fail(error)
            return
        if len(found := self.revisions()) > 1:
            self.keep(found.most_common(1)[0][0])
        late = [each for position, each in self.drafts.items() if position not in self._answers]
        failures = [Failure(self.request_id, each.position, each.n, error.code, error.message) for each in late]
        self._complete([*self._answers.values(), *failures])

    def close(self) -> None:
        """Nobody waits for the answer any more; one that has come already is taken note of."""
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()

    def _is_asked(self, reply: Reply) -> bool:
        """Whether a reply is of the kind that was asked for."""
        if isinstance(reply, Vectors):
            return (self._op == EMBED and not reply.counts) or (self._op == EMBED_ALL and bool(reply.counts))
        return isinstance(reply, Failure) or self._op not in (EMBED, EMBED_ALL)

    def _complete(self, replies: Iterable[Reply]) -> None:
        ordered = sorted(replies, key=lambda reply: reply.position)
        if len({each.dim for each in ordered if isinstance(each, Vectors)}) > 1:
            self.fail(InternalError("Workers of different models serve this queue."))
        else:
            self.answer.set_result(ordered)
