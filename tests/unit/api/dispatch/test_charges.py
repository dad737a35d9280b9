"""Charges for cached vectors while Redis is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch import charges
from api.dispatch.charges import Charges
from api.tenants import Tenant
from shared.charges import Charge
from shared.tenants import NO_WAIT, Quota, QuotaWait
from tests.waiting import wait_until

TENANT = Tenant("a", Quota(daily_tokens=10))


async def test_a_charge_that_is_refused_too_late_overdraws_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has gone out by then, so that its tokens are charged without asking."""
    asked: list[bool] = []

    async def charge(_connection: object, _keys: object, batch: Sequence[Charge]) -> list[QuotaWait]:
        asked.extend(each.may_refuse for each in batch)
        await asyncio.sleep(2 * charges.CHARGE_TIMEOUT_S)
        return [QuotaWait(1_000, "day") if each.may_refuse else NO_WAIT for each in batch]

    monkeypatch.setattr("shared.charges.charge", charge)
    quota = Charges(cast("Any", None), cast("Any", None), lambda _tenant, _budget_s: cast("Any", object()))
    task = asyncio.create_task(quota.run())
    await quota.charge(InferenceRequest(("a",), 1_000, tenant=TENANT), 20, may_refuse=True)
    await wait_until(lambda: len(asked) > 1, "it is charged once more")
    task.cancel()
    assert asked == [True, False]
