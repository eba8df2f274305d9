"""Configuration: origins of values, errors, and the generated page.

``python -m tests.test_config`` writes docs/configuration.md.
"""

from pathlib import Path

import pytest

from tidings.config import Budget, Config, ConfigError, config_of, read

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"


@pytest.fixture
def home(tmp_path):
    """Return a function that reads settings: ``home("[fetch]\\n...", environment, flags)``."""

    def settings(toml="", environment=None, flags=None):
        (tmp_path / "config.toml").write_text(toml)
        return read(tmp_path, environment or {}, flags or {})

    return settings


def test_defaults_without_configuration(tmp_path):
    settings = read(tmp_path, {}, {})
    assert config_of(settings) == Config()
    assert {setting.origin for setting in settings.values()} == {"default"}


def test_precedence_of_flag_environment_and_file(home, tmp_path):
    file = "[fetch]\ntimeout_s = 10\nmax_bytes = 20000\nconcurrency = 7"
    environment = {
        "TIDINGS_FETCH_MAX_BYTES": "30000",
        "TIDINGS_FETCH_CONCURRENCY": "8",
        "HOME": "x",
        "TIDINGS_DATA_DIR": "y",
    }
    settings = home(file, environment, {"fetch.concurrency": "9"})
    config = config_of(settings)
    assert (config.fetch_timeout_s, config.fetch_max_bytes, config.fetch_concurrency) == (
        10.0,
        30000,
        9,
    )
    origins = [
        settings[f"fetch.{name}"].origin for name in ("timeout_s", "max_bytes", "concurrency")
    ]
    assert origins == [
        str(tmp_path / "config.toml"),
        "TIDINGS_FETCH_MAX_BYTES",
        "--set fetch.concurrency",
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("Yes", True), ("false", False), ("0", False)]
)
def test_boolean_values_in_environment(home, text, value):
    assert (
        config_of(home(environment={"TIDINGS_FETCH_ALLOW_PRIVATE": text})).fetch_allow_private
        is value
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[fetch]\ntimeout = 3", "unknown option fetch.timeout; did you mean fetch.timeout_s?"),
        ("[color]\nred = 1", "unknown option color.red; known options: fetch.allow_private, "),
        ("timeout_s = 3", "timeout_s is outside of a section"),
        ("[fetch", "is not valid TOML: "),
        (
            "[fetch]\ntimeout_s = true",
            "fetch.timeout_s must be a number between 1 and 600, not True",
        ),
        ("[fetch]\ntimeout_s = 0", "fetch.timeout_s must be a number between 1 and 600, not 0"),
        ("[fetch]\ntimeout_s = nan", "fetch.timeout_s must be a number between 1 and 600, not nan"),
        (
            "[fetch]\nmax_bytes = 1e6",
            "fetch.max_bytes must be a whole number at least 10,000, not 1000000.0",
        ),
        ("[fetch]\nallow_private = 1", "fetch.allow_private must be true or false, not 1"),
        (
            "[fetch]\ncontact_url = 'me@example.org'",
            "fetch.contact_url must be an http or https URL, or empty",
        ),
        (
            "[policy]\nbudget = '3/week'",
            "policy.budget must be a number above 0, optionally followed by /day, /hour or /feed",
        ),
        ("[policy]\nbudget = 0", "policy.budget must be a number above 0"),
        (
            "[log]\nlevel = 'loud'",
            "log.level must be one of debug, info, warning, error, not 'loud'",
        ),
    ],
)
def test_invalid_file_raises_error_with_allowed_values(home, tmp_path, toml, message):
    with pytest.raises(ConfigError) as raised:
        home(toml)
    assert str(raised.value).startswith(f"{tmp_path / 'config.toml'}: {message}")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("environment", "flags", "message"),
    [
        (
            {"TIDINGS_FETCH_ALOW_PRIVATE": "true"},
            {},
            "TIDINGS_FETCH_ALOW_PRIVATE: unknown option fetch.alow_private",
        ),
        (
            {"TIDINGS_SERVE_PORT": "eighty"},
            {},
            "TIDINGS_SERVE_PORT: serve.port must be a whole number between 0 and 65,535",
        ),
        (
            {"TIDINGS_FETCH_ALLOW_PRIVATE": "perhaps"},
            {},
            "TIDINGS_FETCH_ALLOW_PRIVATE: fetch.allow_private must be true or",
        ),
        (
            {},
            {"serve.port": "70000"},
            "--set serve.port: serve.port must be a whole number between 0 and 65,535, not '70000'",
        ),
        ({}, {"port": "70000"}, "--set port: unknown option port"),
    ],
)
def test_invalid_variable_or_flag_is_named_in_error(home, environment, flags, message):
    with pytest.raises(ConfigError) as raised:
        home("", environment, flags)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "budget", "for_ten"),
    [
        ("2400", Budget(2400, False), 2400),
        ("2400/day", Budget(2400, False), 2400),
        ("100/hour", Budget(2400, False), 2400),
        ("0.5 / feed", Budget(0.5, True), 5),
    ],
)
def test_budget_per_day_hour_or_feed(home, text, budget, for_ten):
    found = config_of(home(environment={"TIDINGS_POLICY_BUDGET": text})).budget
    assert found == budget
    assert found.per_day(10) == for_ten


def test_budget_may_be_a_number_in_file(home):
    assert config_of(home("[policy]\nbudget = 2400")).budget == Budget(2400, False)


INTRODUCTION = """# Configuration options

`tidings config` prints all options with their current values and where each is set.

An option such as `fetch.timeout_s` can be set in three places. Later places take precedence:

1. `config.toml` in the data folder: `timeout_s = 20` under `[fetch]`
2. an environment variable: `TIDINGS_FETCH_TIMEOUT_S=20`
3. the command line: `tidings --set fetch.timeout_s=20 serve`

The data folder is set by `--data-dir DIR` before the command or by `TIDINGS_DATA_DIR`. The default
is `tidings` in the user's data folder (`$XDG_DATA_HOME`, usually `~/.local/share`). `make run` uses
`--data-dir data`.

An unknown option or an invalid value is an error that says where it was set and what is allowed.
Changes take effect at the next start.

This page is generated from `src/tidings/config.py` by `python -m tests.test_config`.
"""
#: Topic of each section, for its heading.
SECTION_TOPICS = {
    "fetch": "requests to publishers",
    "policy": "when feeds are polled",
    "store": "database and retention",
    "serve": "web server",
    "exchange": "exchange with peers",
    "log": "log messages",
}


def page(folder):
    """Return the text of docs/configuration.md."""
    text, section = INTRODUCTION, ""
    for setting in read(folder, {}, {}).values():
        if setting.section != section:
            section = setting.section
            text += (
                f"\n## [{section}]: {SECTION_TOPICS[section]}\n\n"
                "| option | default | allowed | meaning |\n|---|---|---|---|\n"
            )
        default = str(setting.default).lower() if setting.kind is bool else str(setting.default)
        shown = f"`{default}`" if default else "empty"
        text += f"| `{setting.option}` | {shown} | {setting.allowed} | {setting.help} |\n"
    return text


def test_configuration_page_is_current(tmp_path):
    assert PAGE.read_text() == page(tmp_path), "run: python -m tests.test_config"


if __name__ == "__main__":
    PAGE.write_text(page(Path("nowhere")))
