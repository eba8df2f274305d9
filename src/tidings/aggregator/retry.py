"""Retries of storage operations with exponential backoff, for data that must not be lost."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidings.logs import Log
from tidings.store import StoreError

#: Delays in seconds between attempts. The error of the attempt after the last delay is raised.
RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

log = Log("tidings.retry")
T = TypeVar("T")


async def retry_on_store_error(
    work: Callable[[], Awaitable[T]], sleep: Callable[[float], Awaitable[object]]
) -> T:
    """Retry a storage operation with exponential backoff while the database is unavailable.

    Returns the result of ``work``. Raises the last `StoreError` if all attempts fail.
    """
    for wait_s in RETRY_DELAYS_S:
        try:
            return await work()
        except StoreError as error:
            log.warning("store_operation_failed", error=str(error))
            await sleep(wait_s)
    return await work()
