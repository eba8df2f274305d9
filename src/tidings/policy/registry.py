"""Policies by name. A specification may carry parameters: ``fixed:interval_h=24``, ``min-delay:refit_days=1``.

Other packages may bring policies: classes under the entry point group ``tidings.policies`` (docs/plugins.md). They are looked
for when a name is asked for that is not one of ours.
"""

import inspect
from functools import cache

from tidings.errors import TidingsError, UsageError
from tidings.policy import adaptive, planned
from tidings.policy.base import Policy
from tidings.policy.price import PricePolicy

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        PricePolicy,
        planned.Uniform,
        planned.Scheduling,
        planned.MinDelay,
        planned.Combined,
        planned.MinMissing,
        planned.CgmAge,
        planned.CgmFreshness,
        adaptive.Fixed,
        adaptive.FixedLearned,
        adaptive.MovingAverage,
        adaptive.PostRate,
        adaptive.FreshnessRate,
        adaptive.AdaptiveTtl,
        adaptive.Lru2,
        adaptive.IndividualHistory,
    )
}

ENTRY_POINT_GROUP = "tidings.policies"


@cache
def load_plugins() -> None:
    """Add the policies of other packages to `POLICIES`; ours keep their names."""
    from importlib.metadata import entry_points  # two megabytes that nobody needs who has none

    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            found = point.load()
        except (
            Exception
        ) as error:  # whatever a stranger's package does, it must be told which one it was
            raise TidingsError(
                f"the policy plug-in {point.value} cannot be loaded ({error}); repair or remove it"
            ) from error
        if not (isinstance(found, type) and issubclass(found, Policy)):
            raise TidingsError(
                f"the policy plug-in {point.value} is not a subclass of tidings.policy.Policy; ask its author"
            )
        POLICIES.setdefault(found.name, found)


def policy_class(name: str) -> type[Policy]:
    """A policy by its name, or a refusal that lists all there are."""
    if name not in POLICIES:
        load_plugins()
    if name not in POLICIES:
        raise UsageError(f"unknown policy {name!r}; choose from {', '.join(POLICIES)}")
    return POLICIES[name]


def make_policy(spec: str, *, live: bool = False, **overrides: object) -> Policy:
    """Build a policy from ``name[:parameter=value...]``; ``live`` with the defaults of the service."""
    name, *settings = spec.split(":")
    policy = policy_class(name)
    allowed = inspect.signature(policy.__init__).parameters
    values: dict[str, object] = dict(policy.live_defaults) if live else {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or key not in allowed or key == "self":
            known = ", ".join(f"{k}={p.default}" for k, p in allowed.items() if k != "self")
            raise UsageError(f"policy {name!r} has no parameter {key!r}; it takes {known}")
        values[key] = _parse(name, key, text, type(allowed[key].default))
    return policy(**{**values, **overrides})  # type: ignore[arg-type]  # checked against the signature above


def _parse(policy: str, key: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"policy {policy!r}: {key}={text} is not a {kind.__name__}") from None
