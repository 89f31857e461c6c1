"""Finds numbers that name one person: French social security, bank account, payment card.

Each is checked by its own control digits, so that long numbers of another kind are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from rag_assets.screening.findings import Finding
from rag_assets.screening.rules import GroupedRules, Rule
from rag_assets.screening.views import View

# Lengths of ISO 13616-1 account numbers by country (SWIFT's IBAN registry).
_IBAN_LENGTHS: Final = {
    entry[:2]: int(entry[3:])
    for entry in """
        AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BR:29 BY:28 CH:21 CR:22
        CY:28 CZ:24 DE:22 DK:18 DO:28 EE:20 EG:29 ES:24 FI:18 FO:18 FR:27 GB:22 GE:22
        GI:23 GL:18 GR:27 GT:28 HR:21 HU:28 IE:22 IL:23 IQ:23 IS:26 IT:27 JO:30 KW:30
        KZ:20 LB:28 LC:32 LI:21 LT:20 LU:20 LV:21 LY:25 MC:27 MD:24 ME:22 MK:19 MR:27
        MT:31 MU:30 NL:18 NO:15 PK:24 PL:28 PS:29 PT:25 QA:29 RO:24 RS:22 SA:24 SC:31
        SE:24 SI:19 SK:24 SM:27 ST:25 SV:28 TL:23 TN:24 TR:26 UA:29 VA:22 VG:24 XK:20
    """.split()  # noqa: SIM905 - one quoted string a word would take pages
}

# What payment providers, banks and the social security print in their own documentation.
_SPECIMENS: Final = frozenset(
    {
        "4242424242424242",
        "4111111111111111",
        "4000056655665556",
        "4012888888881881",
        "5555555555554444",
        "5105105105105100",
        "5200828282828210",
        "2223003122003222",
        "378282246310005",
        "371449635398431",
        "6011111111111117",
        "6011000990139424",
        "3566002020360505",
        "3530111333300000",
        "30569309025904",
        "FR7630006000011234567890189",
        "FR1420041010050500013M02606",
        "DE89370400440532013000",
        "GB29NWBK60161331926819",
        "GB82WEST12345698765432",
        "BE68539007547034",
        "CH9300762011623852957",
        "ES9121000418450200051332",
        "IT60X0542811101000000123456",
        "NL91ABNA0417164300",
        "LU280019400644750000",
        "269054958815780",
        "255081416802538",
    }
)

_SEPARATORS: Final = b" -."


def find_personal_numbers(views: Iterable[View]) -> Iterator[Finding]:
    """One finding per rule and line of each view; the numbers themselves are not told."""
    for view in views:
        for name, line in _rules().matches(view.text):
            yield Finding(line, "personal_number", name)


@lru_cache(maxsize=1)
def _rules() -> GroupedRules:
    edge = r"(?:^|[^A-Za-z0-9_.,/+=-])"
    end = r"(?:[.,][^0-9]|[^A-Za-z0-9_.,/+=-]|[.,]?$)"
    nir = (
        r"([1-478] ?\d{2} ?(?:[02-9]\d|1[0-2]) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3}[ -]?\d{2})"
        r"|([1-478][ .-]\d{2}[ .-](?:[02-9]\d|1[0-2])[ .-](?:\d{2}|2[AB])[ .-]\d{3}[ .-]\d{3}"
        r"[ .-]\d{2})"
    )
    iban = r"([A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?)"
    card = (
        r"([2-6]\d{3}([ -]?)\d{4}[ -]?\d{4}[ -]?\d{4}(?:[ -]?\d{3})?"
        r"|3[4-7]\d{2}[ -]?\d{6}[ -]?\d{4,5})"
    )
    return GroupedRules(
        [
            Rule("french-social-security-number", f"{edge}(?:{nir}){end}", _is_nir),
            Rule("iban", f"{edge}{iban}{end}", _is_iban),
            Rule("payment-card", f"{edge}{card}{end}", _is_card),
        ]
    )


def _is_nir(match: Any) -> bool:
    number = (match[1] or match[2]).translate(None, _SEPARATORS).decode("ascii")
    if number in _SPECIMENS:
        return False
    # Corsica's departments count as 19 and 18 (INSEE).
    digits = number.replace("2A", "19").replace("2B", "18")
    return int(digits[13:]) == 97 - int(digits[:13]) % 97


def _is_iban(match: Any) -> bool:
    number = match[1].translate(None, _SEPARATORS).decode("ascii")
    length = _IBAN_LENGTHS.get(number[:2])
    if length is None or len(number) < length:
        return False
    number = number[:length]  # an upper-case word may follow
    rearranged = number[4:] + number[:4]
    return number not in _SPECIMENS and int("".join(str(int(c, 36)) for c in rearranged)) % 97 == 1


def _is_card(match: Any) -> bool:
    number = match[1].translate(None, _SEPARATORS).decode("ascii")
    return number not in _SPECIMENS and _known_issuer(number) and _luhn(number)


def _known_issuer(number: str) -> bool:
    """Issuer prefixes and lengths of ISO/IEC 7812, for the cards people carry."""
    size, two, four = len(number), int(number[:2]), int(number[:4])
    return (
        (number[0] == "4" and size in (16, 19))
        or (size == 16 and (51 <= two <= 55 or 2221 <= four <= 2720))
        or (size == 15 and two in (34, 37))
        or (size == 14 and (two in (36, 38) or 300 <= int(number[:3]) <= 305))
        or (size in (16, 19) and (four == 6011 or two == 65 or 3528 <= four <= 3589))
    )


def _luhn(number: str) -> bool:
    digits = [int(c) for c in reversed(number)]
    doubled = (2 * d - 9 * (d > 4) for d in digits[1::2])
    return len(set(digits)) > 2 and (sum(digits[::2]) + sum(doubled)) % 10 == 0
