"""`tidings ...`: the command line."""


def main() -> None: ...
