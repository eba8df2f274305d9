"""Compare polling policies by simulation, for the policy lab page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.model import DAY_S
from tidings.policy import POLICIES

if TYPE_CHECKING:
    from tidings.web.forecast import OwnTrace

#: Name of the trace made from this installation's history. The other traces are generated.
OWN_HISTORY = "own"
#: Size of the simulation, which takes seconds on one core and still ranks the policies correctly.
FEEDS = 100
DAYS = 28.0
TRAIN_DAYS = 14.0
#: Simulated budgets as multiples of the chosen one. Larger budgets make some policies slow.
CURVE_BUDGET_FACTORS = (0.25, 0.5, 1.0, 2.0)
MIN_BUDGET, MAX_BUDGET = 0.1, 12.0
MAX_POLICIES = 5
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Policies, budget and trace of a policy comparison."""

    policies: tuple[str, ...] = ("uniform", "min-delay", "combined")
    budget: float = 4.0  #: polls per feed and day
    kind: str = "sia-cho"  #: name of the trace, `OWN_HISTORY` or a trace model
    seed: int = 1


def read_request(query: Mapping[str, Sequence[str]], kinds: Sequence[str]) -> ComparisonRequest:
    """Return the validated comparison request of a query string, with defaults.

    Raises `UsageError` for unknown parameters and invalid values.
    """
    known = ("policies", "budget", "trace", "seed")
    unknown = [key for key in query if key not in known]
    if unknown:
        raise UsageError(
            _(
                "there is no parameter %(name)s; choose from %(known)s",
                name=repr(unknown[0]),
                known=", ".join(known),
            )
        )
    default = ComparisonRequest()
    names = [
        name.strip() for text in query.get("policies", default.policies) for name in text.split(",")
    ]
    policies = tuple(dict.fromkeys(name for name in names if name))
    for name in policies:
        if name not in POLICIES:
            raise UsageError(
                _(
                    "there is no policy %(name)s; choose from %(known)s",
                    name=repr(name),
                    known=", ".join(POLICIES),
                )
            )
    if not 1 <= len(policies) <= MAX_POLICIES:
        raise UsageError(
            _("choose 1 to %(most)s policies, not %(num)s", most=MAX_POLICIES, num=len(policies))
        )
    kind = _last(query, "trace", default.kind)
    if kind not in kinds:
        raise UsageError(
            _(
                "there is no trace %(name)s; choose from %(known)s",
                name=repr(kind),
                known=", ".join(kinds),
            )
        )
    budget = _number(_last(query, "budget", f"{default.budget:g}"), "budget")
    if not MIN_BUDGET <= budget <= MAX_BUDGET:
        raise UsageError(
            _(
                "the budget must be between %(least)s and %(most)s checks per feed "
                "and day, not %(budget)s",
                least=f"{MIN_BUDGET:g}",
                most=f"{MAX_BUDGET:g}",
                budget=f"{budget:g}",
            )
        )
    seed = _number(_last(query, "seed", str(default.seed)), "seed")
    if seed != int(seed) or not 0 <= seed <= MAX_SEED:
        raise UsageError(
            _(
                "the seed must be a whole number between 0 and %(most)s, not %(seed)s",
                most=MAX_SEED,
                seed=f"{seed:g}",
            )
        )
    return ComparisonRequest(policies, budget, kind, int(seed))


def _last(query: Mapping[str, Sequence[str]], key: str, default: str) -> str:
    values = query.get(key, ())
    return values[-1].strip() if values else default


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError(
            _("the %(name)s must be a number, not %(text)s", name=name, text=repr(text))
        ) from None
    if number - number != 0:  # nan or infinite
        raise UsageError(
            _("the %(name)s must be a finite number, not %(text)s", name=name, text=repr(text))
        )
    return number


@cache
def kinds() -> tuple[str, ...]:
    """Return the names of the traces that can be simulated."""
    from tidings.lab.generate import MODELS

    return (OWN_HISTORY, *MODELS)


def run(request: ComparisonRequest, own: "OwnTrace | None" = None) -> dict[str, Any]:
    """Simulate the policies at several budgets and return the results as JSON-compatible values.

    ``own`` is the installation's trace, for `OWN_HISTORY`. The result is
    ``{"trace", "feeds", "posts", ..., "curve": [...]}``.
    """
    # Imported here because the simulation loads Numba, which most processes do not need.
    from tidings.lab.compare import compare
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
        start = own.trace.training_end(
            own.train_days
        )  # the sample may start later than the whole trace
        train_days = max((start - trace.start) / DAY_S, 0.0)
    curve = []
    for factor in CURVE_BUDGET_FACTORS:
        budget = request.budget * factor
        result = compare(
            trace,
            request.policies,
            budget,
            train_days,
            seed=request.seed,
            native=False,
            conditions=conditions,
        )
        curve.append(result.figures())
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
