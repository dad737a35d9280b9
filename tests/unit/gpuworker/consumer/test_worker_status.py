"""What the log says of a loaded model."""

from __future__ import annotations

from msgspec.structs import replace

from gpuworker.consumer.worker_status import describe_model
from gpuworker.ipc.messages import Ready
from shared.messages import CLASSIFIER_OPS, PREDICT, SOFTMAX


def test_of_many_labels_the_log_has_the_first_ones() -> None:
    """And their number; of few all, and of a function nothing."""
    many = tuple(f"label {number}" for number in range(11))
    ready = Ready(model="my-classifier", ops=tuple(CLASSIFIER_OPS), labels=many, activation=SOFTMAX)
    described = describe_model(ready)
    assert (described["type"], described["operations"]) == ("classifier", sorted(CLASSIFIER_OPS))
    assert (described["labels"], described["num_labels"]) == (list(many[:10]), 11)
    assert described["activation"] == SOFTMAX
    few = describe_model(replace(ready, labels=many[:10]))
    assert (few["labels"], "num_labels" in few) == (list(many[:10]), False)
    assert describe_model(Ready(model="module:Class", ops=(PREDICT,))) == {}
