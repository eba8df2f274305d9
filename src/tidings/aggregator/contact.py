"""The contact address that an admin entered on the first-run page; it is used where the configuration has none."""

from tidings.config import is_web_address
from tidings.errors import UsageError
from tidings.store import Store

#: Key among the store's shared values.
CONTACT = "contact_url"


async def stored_contact(store: Store) -> str:
    """Return the contact address in the store, or an empty text."""
    return (await store.load_values()).get(CONTACT, b"").decode()


async def store_contact(store: Store, url: str) -> None:
    await store.save_values({CONTACT: check_contact(url).encode()})


def check_contact(url: str) -> str:
    """Return the address without surrounding blanks; `UsageError` if it is no web address."""
    url = url.strip()
    if not is_web_address(url):
        raise UsageError("the contact must be a web address, such as https://example.org/about")
    return url
