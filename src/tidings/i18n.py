"""Translation of interface texts with gettext catalogs (internationalization, i18n).

Use ``_("Starred")`` and ``_("%(count)s new", count=3)``; `n_` chooses the plural form, and `N_`
marks a text that is translated later. `make messages` extracts the texts of Python files and
templates to ``locale/tidings.pot``. There are no translations yet, so all texts are English.
"""

from gettext import NullTranslations
from typing import Any

translations = NullTranslations()


def _(text: str, /, **values: Any) -> str:
    """Translate ``text`` and insert its named values."""
    translated = translations.gettext(text)
    return translated % values if values else translated


def N_(text: str, /) -> str:
    """Mark a text for the catalogs without translating it.

    For a text that is defined when a module is imported and translated with `_` when it is shown.
    """
    return text


def n_(one: str, many: str, number: int, **values: Any) -> str:
    """Translate a text in the singular or plural form that fits ``number``.

    The text may contain ``%(num)s``, which becomes the number with thousands separators.
    """
    return translations.ngettext(one, many, number) % {"num": f"{number:,}", **values}
