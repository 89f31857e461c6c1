"""Numbers that name a person are told by their control digits."""

from __future__ import annotations

import random

import pytest

from rag_assets.screening import screen
from rag_assets_tests.screening.near_misses import NOT_PERSONAL

DRAW = random.Random(11)


def _digits(count: int) -> str:
    return "".join(DRAW.choice("0123456789") for _ in range(count))


def _nir(department: str) -> str:
    number = (
        DRAW.choice("12") + _digits(2) + f"{DRAW.randrange(1, 13):02}" + department + _digits(6)
    )
    key = 97 - int(number.replace("2A", "19").replace("2B", "18")) % 97
    return f"{number}{key:02}"


def _iban(country: str, account: str) -> str:
    digits = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{country}{98 - int(digits) % 97:02}{account}"


def _card(prefix: str, size: int) -> str:
    number = prefix + _digits(size - 1 - len(prefix))
    doubled = [int(c) for c in reversed(number)]
    total = sum(2 * d - 9 * (d > 4) for d in doubled[::2]) + sum(doubled[1::2])
    return number + str(-total % 10)


def _grouped(number: str, size: int = 4, separator: str = " ") -> str:
    return separator.join(number[at : at + size] for at in range(0, len(number), size))


def _rules(text: str) -> list[str]:
    return [finding.rule for finding in screen(text, kinds=["personal_number"])]


@pytest.mark.parametrize("department", ["75", "13", "2A", "2B", "97"])
def test_social_security_number_is_found(department: str) -> None:
    """Together or in the usual groups, Corsica included; one wrong digit and it is none."""
    nir = _nir(department)
    cuts = (1, 3, 5, 7, 10, 13, 15)
    grouped = " ".join(nir[a:b] for a, b in zip((0, *cuts), cuts, strict=False))
    wrong = nir[:-1] + str((int(nir[-1]) + 1) % 10)
    assert _rules(f"N° de sécurité sociale : {nir}.") == ["french-social-security-number"]
    assert _rules(f"NIR {grouped}") == ["french-social-security-number"]
    assert _rules(f"NIR {wrong}") == []


@pytest.mark.parametrize("country", ["FR", "DE", "BE", "GB"])
def test_bank_account_is_found(country: str) -> None:
    """Together or in groups of four, and none with a wrong digit."""
    sizes = {"FR": 23, "DE": 18, "BE": 12, "GB": 18}
    account = ("NWBK" if country == "GB" else "") + _digits(sizes[country] - 4 * (country == "GB"))
    iban = _iban(country, account)
    wrong = iban[:-1] + str((int(iban[-1]) + 1) % 10)
    assert _rules(f"IBAN : {iban}") == ["iban"]
    assert _rules(f"Compte\u00a0: {_grouped(iban)}.") == ["iban"]
    assert _rules(f"IBAN : {wrong}") == []


@pytest.mark.parametrize(
    ("prefix", "size"), [("4970", 16), ("5425", 16), ("2321", 16), ("371", 15)]
)
def test_payment_card_is_found(prefix: str, size: int) -> None:
    """Together, in groups, with dashes; not inside longer numbers or identifiers."""
    card = _card(prefix, size)
    assert _rules(f"Carte : {card}") == ["payment-card"]
    if size == 16:
        assert _rules(f"Carte : {_grouped(card)}") == ["payment-card"]
        assert _rules(f"Carte : {_grouped(card, separator='-')}.") == ["payment-card"]
    assert _rules(f"9{card}9 x{card} {card}-1 1.{card}") == []


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_near_miss_is_no_personal_number(text: str) -> None:
    """Other long numbers, specimens and numbers whose control digits are wrong."""
    assert _rules(text) == []


def test_personal_numbers_are_only_looked_for_when_asked() -> None:
    """Kinds are chosen by the caller."""
    text = f"IBAN {_iban('FR', _digits(23))}"
    assert screen(text, kinds=["instructions", "secret"]) == ()
    assert screen(text, kinds=[]) == ()
