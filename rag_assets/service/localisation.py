"""Which language a reader is answered in, and how that language writes numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from markupsafe import Markup, escape

from rag_assets.service.texts import LANGUAGES, TEXTS

LONGEST_ACCEPT_LANGUAGE: Final = 512
"""Characters of an Accept-Language value worth reading."""
_NARROW: Final = "\u202f"
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_BYTE_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    "en": ("B", "kB", "MB", "GB", "TB"),
    "fr": ("o", "ko", "Mo", "Go", "To"),
}


def negotiate(accept_language: str, chosen: str | None) -> str:
    """The language to answer in: the one chosen by hand, else the best accepted one.

    ``accept_language`` is read as RFC 9110 says; a quality of 0 refuses a language.

    >>> negotiate("de, fr-CA;q=0.8, en;q=0.7", None)
    'fr'
    """
    if chosen in LANGUAGES:
        return str(chosen)
    qualities: dict[str, float] = {}
    for position, part in enumerate(accept_language[:LONGEST_ACCEPT_LANGUAGE].split(",")):
        tag, _, parameters = part.partition(";")
        quality = _quality(parameters)
        name = tag.strip().lower().split("-")[0]
        if name in LANGUAGES and quality > 0:
            qualities.setdefault(name, quality - position * 1e-6)
    return max(qualities, key=lambda name: qualities[name]) if qualities else LANGUAGES[0]


def _quality(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return min(1.0, max(0.0, float(value)))
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Localisation:
    """One language's words, numbers and times."""

    language: str
    """One of ``LANGUAGES``."""

    def text(self, key: str, **values: object) -> Markup:
        """The text of ``key``, escaped; ``values`` fill its braces and are escaped too.

        Raises:
            KeyError: there is no such text, or a value is missing.
        """
        return escape(TEXTS[self.language][key]).format(**values)

    def count(self, key: str, number: int) -> Markup:
        """The text of ``key_one`` or ``key_other``: French says one for 0 too."""
        single = number == 1 or (self.language == "fr" and number == 0)
        form = "one" if single else "other"
        return self.text(f"{key}_{form}", n=self.number(number))

    def number(self, value: float, digits: int = 0) -> str:
        """``1,234.5`` in English, ``1 234,5`` with a narrow no-break space in French."""
        written = f"{value:,.{digits}f}".replace("-", "−")
        if self.language == "fr":
            written = written.replace(",", _NARROW).replace(".", ",")
        return written

    def percent(self, share: float) -> str:
        """A share of one, as a percentage."""
        small = "<" if 0 < share < 0.005 else ""
        number = "1" if small else self.number(share * 100)
        space = f"{_NARROW}%" if self.language == "fr" else "%"
        return f"{small}{_NARROW if small and self.language == 'fr' else ''}{number}{space}"

    def size(self, size_bytes: float) -> str:
        """Bytes in the largest decimal unit that leaves at least 1."""
        units = _BYTE_UNITS[self.language]
        power = 0
        while size_bytes >= 1000 and power < len(units) - 1:
            size_bytes /= 1000
            power += 1
        return f"{self.number(size_bytes, 1 if power else 0)}\u00a0{units[power]}"

    def duration(self, seconds: float) -> str:
        """Seconds as ``0.4 s``, ``12 s``, ``3 min 20 s`` or ``2 h 05 min``."""
        if seconds < 10:
            return f"{self.number(seconds, 1)}\u00a0s"
        whole = round(seconds)
        if whole < 60:
            return f"{whole}\u00a0s"
        minutes, rest = divmod(whole, 60)
        if minutes < 60:
            return f"{minutes}\u00a0min {rest:02}\u00a0s"
        hours, minutes = divmod(minutes, 60)
        return f"{self.number(hours)}\u00a0h {minutes:02}\u00a0min"

    def time(self, moment: str) -> str:
        """An ISO 8601 time in UTC: ``30 Nov 2026, 14:05``, ``30/11/2026 14:05`` in French.

        What is not such a time is given back as it is.
        """
        try:
            read = datetime.fromisoformat(moment.replace("Z", "+00:00"))
        except ValueError:
            return moment
        at = read.astimezone(timezone.utc) if read.tzinfo else read
        if self.language == "fr":
            return f"{at.day:02}/{at.month:02}/{at.year:04} {at.hour:02}:{at.minute:02}"
        return f"{at.day} {_MONTHS[at.month - 1]} {at.year}, {at.hour:02}:{at.minute:02}"
