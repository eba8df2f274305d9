"""All words that people see go through `_`, so that a translation needs no change of code.

``_("Starred")`` and ``_("%(count)s new", count=3)``; `n_` where the number decides. Translations are gettext catalogues, as
`pybabel extract` makes them from Python and from the templates. There are none yet: English is what the code says.
"""

from gettext import NullTranslations
from typing import Any

translations = NullTranslations()


def _(text: str, **values: Any) -> str:
    said = translations.gettext(text)
    return said % values if values else said


def n_(one: str, many: str, number: int, **values: Any) -> str:
    """By the number, which is ``%(num)s`` in the text, with thousands parted."""
    return translations.ngettext(one, many, number) % {"num": f"{number:,}", **values}
