"""The User-Agent of every request: program, version, and how to reach the operator."""

from tidings import __version__


def user_agent(contact_url: str, subscribers: int | None = None) -> str:
    """Return the header's value; a contact that is not known is left out, never made up.

    "1 subscribers" is the form that log analysers expect.
    """
    details = [f"+{contact_url}"] if contact_url else []
    if subscribers is not None:
        details.append(f"{subscribers} subscribers")
    return f"tidings/{__version__}" + (f" ({'; '.join(details)})" if details else "")
