"""Processes that pages start."""

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress


async def end(process: Process, patience_s: float) -> None:
    """Wait until it and its pipes are closed; who is too slow is killed.

    What is open when its loop is closed fails later, wherever memory happens to be tidied.
    """
    try:
        await asyncio.wait_for(process.communicate(), patience_s)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has just ended
            process.kill()
        await process.communicate()
