"""Compile functions just in time with numba (extra ``lab``), or run them interpreted."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba

    def jit(function: Function) -> Function:
        """Compile the function on its first call and cache the result on disk."""
        return cast(Function, numba.njit(cache=True)(function))

except ImportError:  # without numba the lab is slower, and nothing else changes

    def jit(function: Function) -> Function:
        """Return the function unchanged, because numba is not installed."""
        return function
