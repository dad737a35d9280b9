"""Dead letters and jobs at the console: who sees what, who may act, what that does, and what the log says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
import redis

from shared.messages import SCORE
from tests.integration.gateway.console_cluster import TEXT, Console, started_console, suspended
from tests.integration.gateway.gateway_cluster import error_of
from tests.integration.gateway.job_client import JobClient
from tests.users import users_are_on

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

NO_JOB, OTHER_JOB = "0" * 32, "f" * 32
UNKNOWN, ARABIC = "1-1", "\u0661-\u0660"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Both gateways and a worker, for all tests."""
    with started_console(tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture(autouse=True)
def no_letters(console: Console) -> Iterator[None]:
    """Deletes what a test has left of dead letters."""
    yield
    console.clear()


def test_letters_of_all_shards_are_listed_without_their_texts(console: Console) -> None:
    """Newest first, with the ids that `redbatch dead` has. Without a key for actions, nothing names a request."""
    first, second = console.add_letter(), console.add_letter(shard=1)
    listed = console.letters()
    assert [each["id"] for each in listed["letters"]] == [second, first]
    assert (listed["total"], listed["problems"], listed["may_act"]) == (2, [], True)
    letter = listed["letters"][0]
    assert (letter["error"], letter["attempts"], letter["inputs"]) == ("input_failed: it kills", 3, 1)
    assert (letter["request_id"], letter["lane"]) == ("request-1", "interactive")
    unnamed = console.letters(None)
    assert (unnamed["may_act"], "request_id" in unnamed["letters"][0]) == (False, False)
    assert TEXT not in str((listed, unnamed))


def test_a_list_needs_a_key_where_all_requests_do(console: Console) -> None:
    """As the state of queues does; a wrong key is refused also where none is needed, and a queue has to be served."""
    path = f"/dead?queue={console.queue}"
    answers = [console.send("GET", path, key, closed=True) for key in (None, "wrong", "embed", "admin")]
    assert [each.status_code for each in answers] == [401, 401, 403, 200]
    assert console.send("GET", path, "wrong").status_code == 401
    assert console.send("GET", path, authorization="Basic YTpi").json()["may_act"] is False  # of a proxy in front
    assert error_of(console.send("GET", "/dead?queue=other"))["code"] == "model_not_found"
    assert error_of(console.send("GET", "/jobs"))["message"] == "queue: send the name of a queue."


@pytest.mark.parametrize("closed", [False, True])
def test_each_action_needs_a_key_for_it(console: Console, closed: bool) -> None:
    """Also where no request needs a key, and also from a form of another site, which can send no header: no cookies.

    The refusal says what to do, changes nothing, and is in the log.
    """
    letter_id = console.add_letter()
    job_id = f"{console.queue}.{NO_JOB}"
    form = {"origin": "https://evil.example", "content_type": "application/x-www-form-urlencoded", "cookie": "a=b"}
    for method, path in console.actions_on(letter_id, job_id):
        for headers in ({}, form):
            answer = console.send(method, path, closed=closed, **headers)
            assert answer.status_code == (401 if closed else 403), path
            assert "redbatch keys create --scope admin" in error_of(answer)["message"]
        refused = console.send(method, path, closed=closed, x_api_key=console.keys["admin"])
        assert "redbatch keys create --scope admin" in error_of(refused)["message"]
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers
        assert console.send(method, path, "embed", closed=closed).status_code == 403
        assert console.send(method, path, "wrong", closed=closed).status_code == 401
    assert [each["id"] for each in console.letters()["letters"]] == [letter_id]
    lines = [each for each in console.audit(console.closed if closed else console.open) if "target" in each]
    letter_actions = [(action, letter_id) for action in ("requeue", "purge", "show text")]
    for action, target in (*letter_actions, ("cancel job", job_id)):
        outcomes = {each["outcome"] for each in lines if (each["action"], each["target"]) == (action, target)}
        assert outcomes == {"forbidden", "invalid_api_key"}
        expected = {"action": action, "queue": console.queue, "target": target, "client": "127.0.0.1"}
        assert expected | {"outcome": "forbidden", "key_id": console.key_id("embed")} in lines


@pytest.mark.parametrize(("shard", "closed"), [(0, False), (1, True)])
def test_a_requeued_letter_is_answered_and_gone(console: Console, shard: int, closed: bool) -> None:
    """The answer says so, and so does the log; a second time there is no such letter."""
    letter_id = console.add_letter(shard=shard)
    path = f"/dead/{letter_id}/requeue?queue={console.queue}"
    answer = console.send("POST", path, "admin", closed=closed)
    assert (answer.status_code, answer.json()) == (200, {"id": letter_id, "answered": True, "error": ""})
    assert answer.headers["cache-control"] == "no-store"
    assert console.letters()["letters"] == []
    assert error_of(console.send("POST", path, "admin", closed=closed))["code"] == "not_found"
    line = {"action": "requeue", "queue": console.queue, "target": letter_id, "key_id": console.key_id("admin")}
    lines = console.audit(console.closed if closed else console.open)[-2:]
    assert lines == [line | {"outcome": each, "client": "127.0.0.1"} for each in ("answered", "not_found")]


def test_a_letter_that_fails_again_stays(console: Console) -> None:
    """The answer has the error in words, and the log its code."""
    letter_id = console.add_letter(op=SCORE)
    answer = console.send("POST", f"/dead/{letter_id}/requeue?queue={console.queue}", "admin").json()
    assert answer["answered"] is False
    assert "invalid_request: This model returns vectors" in answer["error"]
    assert [each["id"] for each in console.letters()["letters"]] == [letter_id]
    assert console.audit()[-1]["outcome"] == "invalid_request"


def test_the_text_is_shown_on_request_and_the_letter_purged(console: Console) -> None:
    """Both are in the log, which has neither the text nor a key."""
    letter_id = console.add_letter()
    path = f"/dead/{letter_id}?queue={console.queue}"
    assert console.send("GET", path, "admin").json()["texts"] == [TEXT]
    assert console.send("DELETE", path, "admin").json() == {"id": letter_id, "deleted": True}
    assert console.letters()["letters"] == []
    for method, unknown in (
        ("GET", UNKNOWN),
        ("DELETE", UNKNOWN),
        ("DELETE", f"7@{UNKNOWN}"),
        *(("GET", each) for each in (TEXT, ARABIC)),
    ):
        answer = console.send(method, f"/dead/{unknown}?queue={console.queue}", "admin")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
    assert [each["outcome"] for each in console.audit()[-7:]] == ["shown", "deleted", *["not_found"] * 5]
    output = console.open.program.output
    assert not any(each in output for each in (TEXT, *(key.partition(".")[2] for key in console.keys.values())))


def test_what_redis_does_not_permit_is_said(console: Console) -> None:
    """Users of an earlier version have no right to change dead letters: the answer says what to do."""
    letter_id = console.add_letter()
    user = "gateway" if users_are_on() else "default"
    with redis.Redis.from_url(console.servers[0].url, protocol=2) as client:
        client.execute_command("ACL", "SETUSER", user, "-xdel")
        try:
            answer = console.send("DELETE", f"/dead/{letter_id}?queue={console.queue}", "admin")
        finally:
            client.execute_command("ACL", "SETUSER", user, "+xdel")
            client.execute_command("ACL", "LOG", "RESET")
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
    assert "give it the rights of this version" in error_of(answer)["message"]
    assert console.audit()[-1]["outcome"] == "not permitted by Redis"


def test_an_open_job_is_listed_and_cancelled(console: Console) -> None:
    """Without a key for actions its id is cut: on a gateway without keys, the id alone gives access to the results."""
    jobs = JobClient(console.open, x_tenant="search")
    with suspended(console.worker):
        job_id = jobs.job_of(jobs.post({"texts": ["a", "b"]}))["id"]
        path = f"/jobs?queue={console.queue}"
        (cut,) = console.send("GET", path).json()["jobs"]
        listed = console.send("GET", path, "admin").json()
        answer = console.send("DELETE", f"/jobs/{job_id}", "admin").json()
    (job,) = listed["jobs"]
    assert (job["id"], job["n"], job["done"], job["owner"]) == (job_id, 2, 0, "search")
    assert (listed["total"], listed["may_act"]) == (1, True)
    assert cut["id"] == f"{job_id.rpartition('.')[0]}.{job_id.rpartition('.')[2][:6]}…"
    assert (answer["changed"], answer["job"]["status"]) == (True, "cancelled")
    assert answer["outcome"] == f"{job_id}: cancelled, 0 of 2 inputs were done"
    assert console.send("GET", path, "admin").json()["jobs"][0]["status"] == "cancelled"
    again = console.send("DELETE", f"/jobs/{job_id}", "admin").json()
    assert (again["changed"], again["outcome"]) == (False, f"{job_id} is already cancelled")
    assert [each["outcome"] for each in console.audit()[-2:]] == ["cancelled", "no change"]
    assert console.audit()[-1]["target"] == job_id


def test_results_are_deleted_only_on_request(console: Console) -> None:
    """A job may end while somebody decides to cancel it."""
    jobs = JobClient(console.open)
    job = jobs.job_of(jobs.post({"texts": ["a"]}))
    jobs.wait_until_ended(job)
    refused = console.send("DELETE", f"/jobs/{job['id']}", "admin")
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_request")
    assert jobs.get(job["result_url"]).status_code == 200
    answer = console.send("DELETE", f"/jobs/{job['id']}?delete_results=true", "admin").json()
    assert answer["outcome"] == f"{job['id']}: its results are deleted; it was done"
    assert jobs.get(job["result_url"]).status_code == 410
    assert console.send("GET", f"/jobs?queue={console.queue}", "admin").json()["deleted"] == 1
    for unknown in (f"{console.queue}.{OTHER_JOB}", f"{console.queue}@7.{OTHER_JOB}", f"other.{OTHER_JOB}", "a"):
        answer = console.send("DELETE", f"/jobs/{unknown}", "admin")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "job_not_found")


async def test_viewers_of_a_list_share_a_read(console: Console, client: httpx.AsyncClient) -> None:
    """For 30 viewers at once, Redis reads the letters a few times at most."""
    console.add_letter()
    url = f"{console.open.url}/console/dead?queue={console.queue}"
    num_before = console.num_calls("xrevrange")
    answers = await asyncio.gather(*(client.get(url) for _ in range(30)))
    assert {each.status_code for each in answers} == {200}
    assert 0 < console.num_calls("xrevrange") - num_before < 10  # 1, on a machine with time
