"""The comparison that the page offers: a form's parameters, checked, and the laboratory run for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tidings.errors import UsageError
from tidings.model import DAY_S
from tidings.policy import POLICIES

if TYPE_CHECKING:
    from tidings.web.forecast import OwnTrace

#: The trace that is no paper's.
OWN_HISTORY = "own"
#: Small enough for an answer in seconds on one core, large enough for the order of the policies to be the true one.
FEEDS = 100
DAYS = 28.0
TRAIN_DAYS = 14.0
#: The curve is drawn from a quarter of the budget to twice of it; beyond, policies that poll by their own rule run for long.
CURVE_BUDGET_FACTORS = (0.25, 0.5, 1.0, 2.0)
MIN_BUDGET, MAX_BUDGET = 0.1, 12.0
MAX_POLICIES = 5
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What the form asks for."""

    policies: tuple[str, ...] = ("uniform", "min-delay", "combined")
    budget: float = 4.0
    kind: str = "sia-cho"
    seed: int = 1


def read_request(query: Mapping[str, Sequence[str]], kinds: Sequence[str]) -> ComparisonRequest:
    """The parameters of a query, each checked; whatever is left out keeps its default."""
    known = ("policies", "budget", "trace", "seed")
    unknown = [key for key in query if key not in known]
    if unknown:
        raise UsageError(f"there is no parameter {unknown[0]!r}; there are {', '.join(known)}")
    default = ComparisonRequest()
    names = [
        name.strip() for text in query.get("policies", default.policies) for name in text.split(",")
    ]
    policies = tuple(dict.fromkeys(name for name in names if name))
    for name in policies:
        if name not in POLICIES:
            raise UsageError(f"there is no policy {name!r}; choose from {', '.join(POLICIES)}")
    if not 1 <= len(policies) <= MAX_POLICIES:
        raise UsageError(f"choose 1 to {MAX_POLICIES} policies, not {len(policies)}")
    kind = _last(query, "trace", default.kind)
    if kind not in kinds:
        raise UsageError(f"there is no trace {kind!r}; choose from {', '.join(kinds)}")
    budget = _number(_last(query, "budget", f"{default.budget:g}"), "budget")
    if not MIN_BUDGET <= budget <= MAX_BUDGET:
        raise UsageError(
            f"the budget must be between {MIN_BUDGET:g} and {MAX_BUDGET:g} polls per feed and day, not {budget:g}"
        )
    seed = _number(_last(query, "seed", str(default.seed)), "seed")
    if seed != int(seed) or not 0 <= seed <= MAX_SEED:
        raise UsageError(f"the seed must be a whole number between 0 and {MAX_SEED}, not {seed:g}")
    return ComparisonRequest(policies, budget, kind, int(seed))


def _last(query: Mapping[str, Sequence[str]], key: str, default: str) -> str:
    values = query.get(key, ())
    return values[-1].strip() if values else default


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"the {what} must be a number, not {text!r}") from None
    if number - number != 0:  # nan or infinite
        raise UsageError(f"the {what} must be a finite number, not {text!r}")
    return number


@cache
def kinds() -> tuple[str, ...]:
    """The traces that can be replayed."""
    from tidings.lab.generate import MODELS

    return (OWN_HISTORY, *MODELS)


def run(request: ComparisonRequest, own: "OwnTrace | None" = None) -> dict[str, Any]:
    """Figures at every step of the budget: ``{"trace", "feeds", "posts", ..., "curve": [...]}``; ``own`` is for `OWN`."""
    from tidings.lab.compare import (
        compare,  # brings a compiler along, and few who run the service need it
    )
    from tidings.lab.generate import generate
    from tidings.lab.whatif import sample_trace

    if own is None:
        trace, conditions, train_days = (
            generate(request.kind, FEEDS, DAYS, request.seed),
            None,
            TRAIN_DAYS,
        )
    else:
        trace, conditions = sample_trace(own.trace, own.conditions, FEEDS, request.seed)
        start = own.trace.training_end(own.train_days)  # a sample may begin later than all feeds do
        train_days = max((start - trace.start) / DAY_S, 0.0)
    curve = []
    for step in CURVE_BUDGET_FACTORS:
        budget = request.budget * step
        at = compare(
            trace,
            request.policies,
            budget,
            train_days,
            seed=request.seed,
            native=False,
            conditions=conditions,
        )
        curve.append(at.figures())
    return {
        "trace": request.kind,
        "seed": request.seed,
        "feeds": trace.n_feeds,
        "posts": trace.n_posts,
        "days": trace.days,
        "train_days": train_days,
        "budget": request.budget,
        "curve": curve,
    }
