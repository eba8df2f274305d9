"""Contact URL for the User-Agent header that an admin has entered on the first-run page.

It is used if the configuration has no contact URL.
"""

from tidings.config import is_web_address
from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store import Store

#: Key of the stored contact URL.
CONTACT = "contact_url"


async def stored_contact(store: Store) -> str:
    """Return the stored contact URL, or an empty string if none is stored."""
    return (await store.load_values()).get(CONTACT, b"").decode()


async def store_contact(store: Store, url: str) -> None:
    await store.save_values({CONTACT: check_contact(url).encode()})


def check_contact(url: str) -> str:
    """Return a contact URL without surrounding whitespace.

    Raises `UsageError` if the text is not an http or https URL.
    """
    url = url.strip()
    if not is_web_address(url):
        raise UsageError(_("the contact must be a web address, such as https://example.org/about"))
    return url
