"""User-Agent header with program, version, contact URL and number of subscribers."""

from tidings import __version__


def user_agent(contact_url: str, subscribers: int | None = None) -> str:
    """Return the value of the User-Agent header.

    An empty contact URL is left out. The plural in "1 subscribers" is the format that log analyzers
    expect.
    """
    details = [f"+{contact_url}"] if contact_url else []
    if subscribers is not None:
        details.append(f"{subscribers} subscribers")
    return f"tidings/{__version__}" + (f" ({'; '.join(details)})" if details else "")
