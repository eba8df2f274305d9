"""Internationalization (i18n): `_` and `n_` translate interface texts with gettext catalogs.

Use ``_("Starred")`` and ``_("%(count)s new", count=3)``; `n_` chooses the plural form. `pybabel
extract` makes the catalogs from Python and from the templates. There are none yet: texts are
English.
"""

from gettext import NullTranslations
from typing import Any

translations = NullTranslations()


def _(text: str, /, **values: Any) -> str:
    """Translate ``text`` and fill in its named values."""
    translated = translations.gettext(text)
    return translated % values if values else translated


def n_(one: str, many: str, number: int, **values: Any) -> str:
    """Translate by number, which is ``%(num)s`` in the text, with thousands separators."""
    return translations.ngettext(one, many, number) % {"num": f"{number:,}", **values}
