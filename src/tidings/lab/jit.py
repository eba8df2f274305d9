"""Compiled loops where numba is installed (it is in the ``lab`` extra); the same functions, interpreted, where it is not."""

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
        """Leave as it is."""
        return function
