"""Just-in-time compilation with numba (extra ``lab``); interpreted functions without it."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba

    def jit(function: Function) -> Function:
        """Compile on first call and cache on disk."""
        return cast(Function, numba.njit(cache=True)(function))

except ImportError:  # the lab is slower, nothing else changes

    def jit(function: Function) -> Function:
        """Return the function unchanged."""
        return function
