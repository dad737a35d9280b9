"""The pages of a gateway: they load nothing from other hosts, and lead to what they name."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from api.console.routes import CONSOLE_READS
from api.pages.routes import FOLDER
from shared.process.version import __version__
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, log_lines
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

# What Chromium sends for an address that a person enters.
PERSON = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
PREFIX = "/ai/embeddings"
CONSOLE_SCRIPTS = sorted((FOLDER / "static").glob("console*.js"))
URL_IN_CSS = re.compile(r"""url\(\s*["']?(?!data:)([^"')]+)|@import""")


class Page(HTMLParser):
    """The addresses in a page: of what it loads, and of what it leads to; and the scripts and styles inside of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.inline_scripts = self.inline_styles = 0
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects the addresses of a tag."""
        values = dict(attrs)
        self.tags.append((tag, values))
        self.inline_scripts += tag == "script" and "src" not in values
        self.inline_styles += tag == "style" or "style" in values
        self.inline_scripts += any(name.startswith("on") for name in values)
        for name in ("src", "href", "data-openapi", "action", "srcset", "poster"):
            value = values.get(name)
            if value is not None:
                (self.links if tag == "a" else self.loads).append(value)


def show(url: str) -> tuple[httpx.Response, Page]:
    """Opens a page as a browser does."""
    answer = plain_http.get(url, headers=PERSON)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer, Page(answer.text)


@pytest.mark.parametrize("path", ["/docs", "/", "/console"])
def test_a_page_loads_everything_from_the_gateway(served: GatewayProcess, path: str) -> None:
    """Without internet it works: each file is the gateway's, of the right type, and names no file of another host."""
    answer, page = show(f"{served.url}{path}")
    assert answer.status_code == 200
    assert page.loads
    for address in page.loads:
        assert not urlsplit(address).netloc, address
        file = plain_http.get(urljoin(answer.url.__str__(), address))
        assert file.status_code == 200, address
        if address.endswith(".css"):
            assert file.headers["content-type"].startswith("text/css")
            assert URL_IN_CSS.findall(file.text) == []
        if address.endswith(".js"):
            assert file.headers["content-type"].startswith("text/javascript")
        if address.endswith(".svg"):
            assert file.headers["content-type"].startswith("image/svg+xml")
            assert "href" not in file.text


@pytest.mark.parametrize("path", ["/docs", "/", "/console"])
def test_a_browser_refuses_everything_from_other_hosts(served: GatewayProcess, path: str) -> None:
    """The policy of a page admits the gateway alone, scripts only as files; and the page has no other scripts."""
    answer, page = show(f"{served.url}{path}")
    policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert not policy.keys() & {"script-src", "connect-src", "font-src"}
    assert {source for sources in policy.values() for source in sources.split()} <= {
        *("'self'", "'none'", "'unsafe-inline'", "data:", "'script'"),
    }
    assert page.inline_scripts == 0


def test_the_console_admits_no_style_inside_of_it_and_no_markup_from_its_script(served: GatewayProcess) -> None:
    """The names that it shows come from workers: its policy is stricter, and its script knows no way to write HTML."""
    answer, page = show(f"{served.url}/console")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert page.inline_styles == 0
    script = "".join(each.read_text(encoding="utf-8") for each in CONSOLE_SCRIPTS)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", ".cookie", "localStorage"):
        assert way not in script, way
    assert not re.search(r"https?://", script)


def test_the_console_can_be_read_by_a_screen_reader(served: GatewayProcess) -> None:
    """Each table has a caption, and each head of a column a scope; one line tells of changes; fields have labels."""
    _, page = show(f"{served.url}/console")
    tags = [tag for tag, _ in page.tags]
    assert tags.count("table") == tags.count("caption") == tags.count("tbody") == 10
    assert all(values.get("scope") == "col" for tag, values in page.tags if tag == "th")
    assert [values["id"] for _, values in page.tags if values.get("role") == "status"] == ["status"]
    fields = {values["id"] for tag, values in page.tags if tag in ("input", "select", "textarea")}
    assert {values["for"] for tag, values in page.tags if tag == "label"} == fields > {"key"}
    ids = [values["id"] for _, values in page.tags if "id" in values]
    script = "".join(each.read_text(encoding="utf-8") for each in CONSOLE_SCRIPTS)
    assert set(re.findall(r'byId\("([^"]+)"\)', script)) <= set(ids)


def test_the_console_draws_with_a_file_that_a_browser_may_load(served: GatewayProcess) -> None:
    """The library of the charts is as small as promised, comes with its licence, and writes no markup."""
    url = f"{served.url}/docs/static/vendor/uplot"
    script, licence = (plain_http.get(f"{url}/{name}") for name in ("uPlot.iife.min.js", "LICENSE"))
    assert (script.status_code, licence.status_code) == (200, 200)
    assert len(script.content) < 52_000
    assert "MIT License" in licence.text
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script.text, way


async def test_viewers_of_the_console_share_a_read(served: GatewayProcess, client: httpx.AsyncClient) -> None:
    """Of 50 viewers at once, who all get the state of the queue, most see that of the same read."""
    answers = await asyncio.gather(*(client.get(f"{served.url}/console/state") for _ in range(50)))
    assert {each.status_code for each in answers} == {200}
    assert {each.headers["cache-control"] for each in answers} == {"no-store"}
    assert len({json.dumps(each.json()["queues"]) for each in answers}) < 10  # one, on a machine with time
    history = (await client.get(f"{served.url}/console/history")).json()
    (queue,) = history["queues"]
    assert len(queue["requests_per_s"]) == len(history["times_s"]) > 0
    refused = await client.get(f"{served.url}/console/state?queue=a")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("path", sorted(CONSOLE_READS))
async def test_what_the_console_reads_is_answered_as_other_routes_are(
    served: GatewayProcess, client: httpx.AsyncClient, path: str
) -> None:
    """Although it goes past the framework's router: methods, parameters, the end of the path, the log."""
    statuses = [
        (await client.request(method, f"{served.url}{path}{rest}")).status_code
        for method, rest in (("GET", ""), ("HEAD", ""), ("POST", ""), ("GET", "%0A"), ("GET", "/"), ("GET", "?a=b"))
    ]
    assert statuses == [200, 405, 405, 404, 404, 400]

    def logged() -> list[int]:
        return [line["status"] for line in log_lines(served.program) if line.get("route") == path]

    await wait_until(lambda: 400 in logged(), "the refusal is in the log")


@pytest.mark.parametrize("path", [*sorted(CONSOLE_READS), "/usage"])
def test_a_page_of_another_site_cannot_read_the_console(served: GatewayProcess, path: str) -> None:
    """Whose name leads to this gateway (DNS rebinding); requests for vectors are answered under any name."""
    refused = plain_http.get(f"{served.url}{path}", headers={"host": "rebound.example.com"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    port = served.url.rpartition(":")[2]
    assert plain_http.get(f"{served.url}{path}", headers={"host": f"localhost:{port}"}).status_code == 200
    headers = {"host": "rebound.example.com"}
    assert plain_http.post(f"{served.url}/embed", json={"text": "a"}, headers=headers).status_code == 200


def test_swagger_ui_reads_the_description_and_asks_no_validator(served: GatewayProcess) -> None:
    """The page is complete: Swagger UI, its style, its start, the project's icon and the description."""
    _, page = show(f"{served.url}/docs")
    assert {each.rpartition("/")[2] for each in page.loads} == {
        *("favicon.svg", "swagger-ui.css", "pages.css", "openapi.json", "swagger-ui-bundle.js", "docs.js"),
    }
    script = plain_http.get(f"{served.url}/docs/static/docs.js").text
    assert "validatorUrl: null" in script
    assert "SwaggerUIBundle" in plain_http.get(f"{served.url}/docs/static/swagger-ui-bundle.js").text


def test_a_person_is_led_on(served: GatewayProcess) -> None:
    """The first page says what this is and whether it is ready; each of its links works."""
    answer, page = show(f"{served.url}/")
    assert "Text embeddings" in answer.text
    assert __version__ in answer.text
    assert ">Ready<" in answer.text
    assert set(page.links) == {"/", "/docs", "/v1/models", "/console", "/openapi.json", "/readyz"}
    for link in page.links:
        assert plain_http.get(f"{served.url}{link}").status_code == 200, link


@pytest.mark.parametrize("accept", ["*/*", "application/json", None])
def test_a_program_gets_the_same_links(served: GatewayProcess, accept: str | None) -> None:
    """As JSON, with name and version; caches keep both answers apart."""
    with plain_http.blocking_client() as client:
        client.headers.pop("accept")
        answer = client.get(f"{served.url}/", headers={} if accept is None else {"accept": accept})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["vary"] == "accept"
    body = answer.json()
    assert (body["name"], body["version"]) == ("Redbatch", __version__)
    assert set(body["links"].values()) == {"/docs", "/openapi.json", "/v1/models", "/console", "/readyz"}
    for link in body["links"].values():
        assert plain_http.get(f"{served.url}{link}").status_code == 200, link


def test_a_gateway_without_keys_shows_no_locks(served: GatewayProcess) -> None:
    """Its description names no key, except for the actions, which always need one."""
    assert plain_http.get(f"{served.url}/openapi.json").json()["security"] == []


def test_a_client_cannot_put_text_into_the_page(served: GatewayProcess) -> None:
    """The host that a client names is shown in the page as text."""
    answer = plain_http.get(f"{served.url}/", headers=PERSON | {"host": 'a"><script>alert(1)</script>'})
    assert "<script>" not in answer.text


@pytest.mark.timeout(60)
async def test_pages_below_a_prefix_without_a_worker(cluster: GatewayCluster) -> None:
    """All addresses have the prefix, and the page says what is missing, with the status that probes get."""
    gateway = await cluster.start_gateway(root_path=PREFIX, worker_grace_s="0.5", auth="on")
    await wait_until(lambda: gateway.missing() == ["worker"], "the gateway knows Redis")
    description = plain_http.get(f"{gateway.url}/openapi.json").json()
    assert description["security"] == [{"bearer": []}, {"header": []}]  # none may be left out
    for path in ("/", "/docs", "/console"):
        answer, page = show(f"{gateway.url}{PREFIX}{path}")
        assert answer.status_code == (503 if path == "/" else 200)
        assert ("worker missing" in answer.text) == (path == "/")
        assert all(each.startswith(f"{PREFIX}/") for each in (*page.loads, *page.links))
        for address in page.loads:
            assert plain_http.get(f"{gateway.url}{address}").status_code == 200, address
