"""The page that documents the API, behind API keys: it is open, and the calls that it sends have the key."""

from __future__ import annotations

import pytest

from shared import api_keys
from tests.browser.browser import Browser, in_thread, wait_for_text
from tests.browser.conftest import Served, connections_of

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(120), pytest.mark.leaves_anything]

EMBED = ".opblock:has(.opblock-summary-path[data-path='/embed'])"
STATUS = f"{EMBED} .live-responses-table tr.response .response-col_status"
DIALOG = ".modal-ux"


async def test_its_calls_have_the_key_of_the_authorize_button(served: Served, browser: Browser) -> None:
    """Without a key the example of a route gets 401, with it 200. The page loads nothing from elsewhere."""
    connections = connections_of(served.cluster)
    key, secret = api_keys.new_key(("embed",))
    await api_keys.add(connections.connection("keys"), key)
    await connections.close()
    await in_thread(browser, "open", f"{served.keyed.url}/docs", "light")
    await in_thread(browser, "click", f"{EMBED} .opblock-summary-control")
    await in_thread(browser, "click", f"{EMBED} .execute")
    await wait_for_text(browser, STATUS, "401")
    await in_thread(browser, "click", ".btn.authorize")
    await in_thread(browser, "fill", f"{DIALOG} input", secret)
    await in_thread(browser, "click", f"{DIALOG} button[type=submit]")
    await in_thread(browser, "click", f"{DIALOG} .btn-done")
    await in_thread(browser, "click", f"{EMBED} .execute")
    await wait_for_text(browser, STATUS, "200")
    events = await in_thread(browser, "events")
    assert [each for each in events if "status of 401" not in each] == []
