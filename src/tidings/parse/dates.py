"""Date parser for RFC 822, ISO 8601 and the variants that occur in real feeds.

The parser does not use the current time, so dates in the future are accepted. A date that cannot
be parsed is None, never a guess.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from unicodedata import combining, normalize


class ParsedDate(NamedTuple):
    """Unix time of a parsed date in seconds, and whether the time of day was missing."""

    time: float
    date_only: bool = False


_MONTHS = {
    name: i + 1 for i, name in enumerate(re.findall("...", "janfebmaraprmayjunjulaugsepoctnovdec"))
}
# Prefixes of month names that differ from English, without accents. The languages are German,
# French, Spanish, Italian, Portuguese, Dutch and the Nordic languages.
_MONTHS |= {
    "mrz": 3,
    "maa": 3,
    "mai": 5,
    "mag": 5,
    "mei": 5,
    "maj": 5,
    "okt": 10,
    "out": 10,
    "ott": 10,
    "dez": 12,
}
_MONTHS |= {"dic": 12, "ene": 1, "gen": 1, "fev": 2, "avr": 4, "abr": 4, "giu": 6, "lug": 7}
_MONTHS |= {"juin": 6, "juil": 7, "aou": 8, "ago": 8, "set": 9, "des": 12}
_MONTHS |= {"sze": 9, "мая": 5}  # Hungarian September, second form of Russian May
# Months in Greek, Russian, Ukrainian and Turkish. Polish and Croatian are left out, because "lis"
# and "lip" are different months in these two languages.
for _twelve in (
    "ιαν φεβ μαρ απρ μαι ιουν ιουλ αυγ σεπ οκτ νοε δεκ",
    "янв фев мар апр маи июн июл авг сен окт ноя дек",
    "січ лют бер кві тра чер лип сер вер жов лис гру",
    "oca sub mar nis may haz tem agu eyl eki kas ara",
):
    _MONTHS |= {name: i + 1 for i, name in enumerate(_twelve.split())}
#: Offset from UTC in hours of time zones in RFC 822 sect. 5.1 and in real feeds. The military
#: letters except Z are left out, because RFC 822 had their signs wrong and RFC 2822 sect. 4.3
#: therefore treats them as unknown.
_ZONES = {
    "ut": 0,
    "utc": 0,
    "gmt": 0,
    "z": 0,
    "est": -5,
    "edt": -4,
    "cst": -6,
    "cdt": -5,
    "mst": -7,
    "mdt": -6,
    "pst": -8,
}
_ZONES |= {
    "pdt": -7,
    "akst": -9,
    "akdt": -8,
    "hst": -10,
    "ast": -4,
    "adt": -3,
    "wet": 0,
    "west": 1,
    "bst": 1,
    "cet": 1,
}
_ZONES |= {
    "cest": 2,
    "met": 1,
    "mest": 2,
    "mez": 1,
    "mesz": 2,
    "eet": 2,
    "eest": 3,
    "msk": 3,
    "msd": 4,
    "jst": 9,
    "kst": 9,
}
_ZONES |= {
    "sgt": 8,
    "hkt": 8,
    "aest": 10,
    "aedt": 11,
    "awst": 8,
    "nzst": 12,
    "nzdt": 13,
    "sast": 2,
    "et": -5,
    "ct": -6,
}
_ZONES |= {"mt": -7, "pt": -8, "at": -4, "brt": -3, "art": -3}
_HALF_ZONES = {"ist": 5.5, "acst": 9.5, "acdt": 10.5, "nst": -3.5, "ndt": -2.5}

_ISO = re.compile(
    r"""(?P<year>(?:1\d|20)\d\d)
    (?: -?(?P<ordinal>\d{3})(?!\d|-\d) | -?w(?P<week>\d\d)(?:-?(?P<weekday>\d))?
    | (?: [-/.]0?(?P<month>\d\d?) (?:[-/.](?P<day>\d\d?))? | (?P<month2>\d\d)(?P<day2>\d\d)? ) )?
    (?: (?: \s*t\s* | \s+ | (?<=\d{8}) ) (?P<clock>\d.*) )? $""",
    re.IGNORECASE | re.VERBOSE,
)
#: Pattern for dates with a year of two digits, which ISO 8601 allowed before 2004, such as
#: 03-12-31, 031231, -03-12, -0312 and ordinal dates such as 03335.
_ISO_SHORT = re.compile(r"(\d\d)(-?)(\d\d)\2(\d\d)|-(\d\d)-?(\d\d)|(\d\d)(\d{3})")
#: Translation of dates such as 2004년 5월 28일 오후 1:31 and 2004年5月28日(金) 午後1時31分 to
#: ISO 8601. Without a time zone, Korean and Japanese dates are UTC+9, and Chinese dates are UTC+8.
_CJK_UNITS = str.maketrans("년월일年月日号號시时時点點분分초秒", "-- --   :::::::  ")
_CJK_WEEKDAY = re.compile(r"\([^)]*\)|.요일|.曜日?|星期.|[周週].")
_CJK_AM_PM = re.compile(r"(?:(오전|上午|午前)|오후|下午|午後)\s*(\d[\d:]*)")
_KOREAN_OR_JAPANESE = re.compile("[가-힣ぁ-ヿ曜]|午[前後]")
_CLOCK = re.compile(
    r"(?P<hour>\d\d?)[:.h]?(?P<minute>\d\d)(?:[:.]?(?P<second>\d\d?)(?:[.,:](?P<fraction>\d+))?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?\s*(?P<zone>.*)",
    re.IGNORECASE,
)
_BEFORE_CLOCK = re.compile(r"^(?:[^\d\s]+ ){1,3}(?=\d)")  # at, um, à, г.
_OFFSET = re.compile(r"(?:gmt|utc|ut|etc/gmt|z)?\s*([+-])\s*(\d{1,2}):?(\d\d)?", re.IGNORECASE)
_WEEKDAY = re.compile(r"^[^\d\s,]+?(?:,|\.,|\.?\s)\s*(?=\S)")
#: Pattern for the usual form of RFC 822 in UTC, which about 90 % of dates have (fast path).
_COMMON = re.compile(
    r"[A-Z][a-z]{2}, (\d\d?) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|[+-]0000)"
)
_COMMON_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_UNIX = re.compile(r"\d{9,10}(?:\.\d+)?|\d{12,13}")


@lru_cache(maxsize=64)  # the two dates of an entry are usually equal
def parse_date(text: str) -> ParsedDate | None:
    """Return a date in any supported format, or None if the text cannot be parsed."""
    text = " ".join(text.split())[:100]
    if not text:
        return None
    if common := _COMMON.fullmatch(text):
        day, name, year, hour, minute, second = common.groups()
        if month := _MONTHS.get(name.lower()):
            with suppress(ValueError):
                date = datetime(
                    int(year), month, int(day), int(hour), int(minute), int(second), tzinfo=UTC
                )
                return ParsedDate(date.timestamp())
    if _COMMON_ISO.fullmatch(text):
        with suppress(ValueError):
            return ParsedDate(datetime.fromisoformat(text).timestamp())
    if _UNIX.fullmatch(text):
        number = float(text)
        return ParsedDate(number / 1000 if number > 1e11 else number)
    for attempt in _candidates(text):
        try:
            when = _assemble(*attempt)
        except (ValueError, OverflowError):  # February 31, 25:00
            continue
        if when is not None:
            return when
    return None


def _candidates(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield each possible interpretation as year, month, day and the text of the time of day."""
    if not text.isascii():
        text = _normalize_cjk_date(text)
    iso = _ISO.match(text)
    if iso:
        clock = iso["clock"] or ""
        if iso["ordinal"]:
            yield *_calendar_day(iso["year"] + iso["ordinal"], "%Y%j"), clock
        elif iso["week"]:
            yield (
                *_calendar_day(f"{iso['year']}{iso['week']}{iso['weekday'] or 1}", "%G%V%u"),
                clock,
            )
        else:
            yield (
                int(iso["year"]),
                int(iso["month"] or iso["month2"] or 1),
                int(iso["day"] or iso["day2"] or 1),
                clock,
            )
    if short := _ISO_SHORT.fullmatch(text):
        if short[8]:
            yield *_calendar_day(f"{_year(short[7])}{short[8]}", "%Y%j"), ""
        else:
            yield _year(short[1] or short[5]), int(short[3] or short[6]), int(short[4] or 1), ""
    stripped = _WEEKDAY.sub("", text, count=1)
    for candidate in (text, stripped):
        candidate = re.sub(r"(?<=\d)T(?=\d)", " ", candidate)
        tokens = re.split(r"[\s,]+|(?<=[^\d\s+])-(?=\d)|(?<=\d)-(?=[^\d\s])", candidate, maxsplit=3)
        if len(tokens) < 3:
            continue
        rest = tokens[3] if len(tokens) > 3 else ""
        first, second, third = tokens[:3]
        if (month := _month(second)) and (day := _day(first)) and (year := _year(third)):
            yield year, month, day, rest  # 1 Jan 2004 00:00:00 GMT
        elif (month := _month(first)) and (day := _day(second)):
            if year := _year(third):
                yield year, month, day, rest  # January 1, 2004 00:00
            elif ":" in third and (tail := rest.split()) and (year := _year(tail[-1])):
                # asctime: Jan 1 00:00:00 [GMT] 2004
                yield year, month, day, " ".join([third, *tail[:-1]])
        elif (
            len(first) >= 4
            and (month := _month(second))
            and (year := _year(first))
            and (day := _day(third))
        ):
            yield year, month, day, rest  # 2004 Jan 1
    numeric = re.match(r"(?:\w+,? )?(\d{4})/(\d\d?)/(\d\d?)(?: (.*))?$", text)
    if numeric:
        yield int(numeric[1]), int(numeric[2]), int(numeric[3]), numeric[4] or ""
    numeric = re.match(r"(\d\d?)([/.])(\d\d?)\2(\d{4})(?:,? (.*))?$", stripped)
    if numeric:
        # 12/31/2004 is American, 31.12.2004 European. With slashes, the month comes first unless
        # the first number is larger than 12.
        first_number, second_number = int(numeric[1]), int(numeric[3])
        american = numeric[2] == "/" and first_number <= 12
        month, day = (first_number, second_number) if american else (second_number, first_number)
        yield int(numeric[4]), month, day, numeric[5] or ""


def _calendar_day(text: str, form: str) -> tuple[int, int, int]:
    """Convert a day of the year or week to (year, month, day).

    Returns zeros if the day does not exist.
    """
    try:
        date = datetime.strptime(text, form)
    except ValueError:
        return 0, 0, 0
    return date.year, date.month, date.day


def _normalize_cjk_date(text: str) -> str:
    """Convert Chinese, Japanese and Korean dates to ISO 8601.

    Other texts are returned unchanged.
    """
    plain = _CJK_WEEKDAY.sub(" ", text).translate(_CJK_UNITS)
    plain = _CJK_AM_PM.sub(lambda half: f"{half[2]} {'am' if half[1] else 'pm'}", plain)
    if plain == text:
        return text
    plain = re.sub(r":(?!\d)|(?<=-) ", "", " ".join(plain.split())).rstrip(" -")
    if re.search(r":\d\d(?: [ap]m)?$", plain):
        plain += " +0900" if _KOREAN_OR_JAPANESE.search(text) else " +0800"
    return plain


def _assemble(year: int, month: int, day: int, clock: str) -> ParsedDate | None:
    if not clock.strip():
        return ParsedDate(datetime(year, month, day, tzinfo=UTC).timestamp(), date_only=True)
    parts = _CLOCK.match(_BEFORE_CLOCK.sub("", clock.strip()))
    if parts is None:
        offset = _offset(clock)  # "1 Jan 2004 GMT"
        return (
            None
            if offset is None
            else ParsedDate(
                datetime(year, month, day, tzinfo=UTC).timestamp() - offset, date_only=True
            )
        )
    hour, minute, second = int(parts["hour"]), int(parts["minute"]), int(parts["second"] or 0)
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"][0] in "pP" else 0)
    offset = _offset(parts["zone"])
    # 24:00 (midnight at the end of a day in ISO 8601) and second 60 (leap second) carry over.
    extra = timedelta(hours=hour, minutes=minute, seconds=min(second, 60))
    if hour > 24 or minute > 59:
        return None
    moment = datetime(year, month, day, tzinfo=UTC) + extra
    fraction = float(f"0.{parts['fraction']}") if parts["fraction"] else 0.0
    return ParsedDate(moment.timestamp() + fraction - (offset or 0.0))


def _offset(zone: str) -> float | None:
    """Return the offset from UTC of a time zone in seconds, or None for an unknown time zone."""
    zone = zone.strip()
    match = _OFFSET.match(zone)
    if match:
        hours, minutes = int(match[2]), int(match[3] or 0)
        if hours > 24:
            return None
        return (hours * 60 + minutes) * (60.0 if match[1] == "+" else -60.0)
    name = re.split(r"[\s(]", zone.lower(), maxsplit=1)[0].rpartition("/")[2].rstrip(".")
    hours_ahead = _HALF_ZONES.get(name, _ZONES.get(name))
    return None if hours_ahead is None else hours_ahead * 3600.0


def _month(word: str) -> int:
    word = word.lower()
    if not word.isascii():
        word = "".join(c for c in normalize("NFD", word) if not combining(c))
    return _MONTHS.get(word[:4]) or _MONTHS.get(word[:3], 0)


def _day(word: str) -> int:
    match = re.match(r"(\d\d?)(?:st|nd|rd|th|\.)?,?$", word.lower())
    return int(match[1]) if match else 0


def _year(word: str) -> int:
    """Return a year of two to four digits as a number, or 0 if it is invalid.

    According to RFC 2822 sect. 4.3, 00 to 49 are 2000 to 2049. Other years of two or three digits
    count from 1900.
    """
    match = re.match(r"'?(\d{2,4})\.?$", word)
    if not match:
        return 0
    year = int(match[1])
    if len(match[1]) == 4:
        return year
    return year + 2000 if year < 50 else year + 1900
