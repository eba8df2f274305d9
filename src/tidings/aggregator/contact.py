"""Contact URL for the User-Agent, as entered by an admin on the first-run page.

It is used if the configuration has none.
"""

from tidings.config import is_web_address
from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store import Store

#: Key of the stored contact URL.
CONTACT = "contact_url"


async def stored_contact(store: Store) -> str:
    """Return the stored contact URL, or an empty string."""
    return (await store.load_values()).get(CONTACT, b"").decode()


async def store_contact(store: Store, url: str) -> None:
    await store.save_values({CONTACT: check_contact(url).encode()})


def check_contact(url: str) -> str:
    """Return the URL without surrounding whitespace; `UsageError` if it is not an http(s) URL."""
    url = url.strip()
    if not is_web_address(url):
        raise UsageError(_("the contact must be a web address, such as https://example.org/about"))
    return url
