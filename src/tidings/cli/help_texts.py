"""Translation of the help of commands, which click takes from their docstrings.

`tools/extract_commands.py` adds the paragraphs of these docstrings to the message catalog.
"""

from inspect import cleandoc

import click

from tidings.i18n import _


def translate_help(command: click.Command) -> None:
    """Replace the help of ``command`` and of its subcommands by translations.

    Each paragraph is one message. Paragraphs that start with a backspace character are examples:
    click prints their lines as they are, and they stay unchanged.
    """
    if command.help:
        paragraphs = cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(map(_translate, paragraphs))
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            translate_help(subcommand)


def _translate(paragraph: str) -> str:
    if paragraph.startswith("\b"):
        return paragraph
    text = " ".join(paragraph.split())
    return _(text)
