"""Errors are pickled between processes: the lab uses several."""

import pickle

import pytest

from tidings.errors import MissingExtra, TraceError, UsageError


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no such policy"),
        TraceError("posts.csv", "is not sorted", row=3, column="time"),
        MissingExtra("matplotlib", "lab", "plotting"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error):
    restored = pickle.loads(pickle.dumps(error))
    assert (type(restored), str(restored), vars(restored)) == (type(error), str(error), vars(error))
