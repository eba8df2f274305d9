"""A store that is being restarted is waited for: what was fetched is worth that."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidings.logs import Log
from tidings.store import StoreError

#: Between two tries, after which it is given up.
RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

log = Log("tidings.retry")
T = TypeVar("T")


async def retry_on_store_error(
    work: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[object]]
) -> T:
    """What ``work`` returns, as soon as the store can be used."""
    for wait_s in RETRY_DELAYS_S:
        try:
            return await work()
        except StoreError as error:
            log.warning("the store cannot be used; trying again", error=str(error))
            await sleep(wait_s)
    return await work()
