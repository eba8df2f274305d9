"""Registry of the built-in policies by name, and of plug-ins from entry points.

A specification may have parameters: ``fixed:interval_h=24``, ``min-delay:refit_days=1``.

Other packages can provide policies as classes under the entry point group ``tidings.policies``
(docs/plugins.md). They are loaded when a name is not one of the built-in policies.
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

#: Entry point group of policy plug-ins.
ENTRY_POINT_GROUP = "tidings.policies"


@cache
def load_plugins() -> None:
    """Add the policies of installed plug-ins to `POLICIES`; built-in policies take precedence.

    Raises `TidingsError` if a plug-in cannot be loaded or is not a subclass of `Policy`.
    """
    from importlib.metadata import entry_points  # imported late: it takes 2 MB

    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugin = point.load()
        except Exception as error:  # a plug-in can fail in any way; the message must name it
            raise TidingsError(
                f"the policy plug-in {point.value} cannot be loaded ({error});"
                " repair or uninstall it"
            ) from error
        if not (isinstance(plugin, type) and issubclass(plugin, Policy)):
            raise TidingsError(
                f"the policy plug-in {point.value} is not a subclass of tidings.policy.Policy;"
                " uninstall it or report this to its author"
            )
        POLICIES.setdefault(plugin.name, plugin)


def policy_class(name: str) -> type[Policy]:
    """Return the policy class with this name.

    Raises `UsageError` with the known names if there is none.
    """
    if name not in POLICIES:
        load_plugins()
    if name not in POLICIES:
        raise UsageError(f"unknown policy {name!r}; choose from {', '.join(POLICIES)}")
    return POLICIES[name]


def make_policy(spec: str, *, live: bool = False, **overrides: object) -> Policy:
    """Create a policy from a specification ``name[:parameter=value...]``.

    ``live`` applies the defaults of the service (`Policy.live_defaults`). ``overrides`` are further
    parameters. Raises `UsageError` for an unknown policy or parameter, or an invalid value.
    """
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
    return policy(**{**values, **overrides})  # type: ignore[arg-type]  # checked above


def _parse(policy: str, key: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"policy {policy!r}: {key}={text} is not a {kind.__name__}") from None
