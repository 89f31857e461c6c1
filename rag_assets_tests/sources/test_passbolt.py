"""What Passbolt writes is recognised in every shape, and prose about it is left alone."""

from __future__ import annotations

import json
import time

import pytest

from rag_assets.errors import ConfigurationError
from rag_assets.sources.passbolt import passbolt_export, refuse_passbolt_address

ARMOR = "-----BEGIN PGP {kind}-----\n\nwcBMA0Fsmv2hLcZ1AQf/Yl1tFJkm\n-----END PGP {kind}-----"
MESSAGE = ARMOR.format(kind="MESSAGE")

HEADINGS = {
    "kdbx-csv": "Group,Title,Username,Password,URL,Notes",
    "kdbx-csv with codes": "Title,Username,URL,Password,Notes,Group,TOTP",
    "lastpass-csv": "url,username,password,extra,name,grouping",
    "1password-csv": "Title,Username,URL,Password,Notes,Type",
    "dashlane-csv": "username,username2,username3,title,password,note,url,category,otpSecret",
    "nordpass-csv": "name,url,username,password,note,folder",
    "logmeonce-csv": "name,url,note,group,username,password,extra",
    "bitwarden-csv": "folder,favorite,type,name,notes,fields,login_uri,login_username,"
    "login_password,login_totp",
    "chromium-csv": "name,url,username,password",
    "firefox-csv": "url,username,password,httpRealm,formActionOrigin,guid,timeCreated",
    "safari-csv": "Title,URL,Username,Password,Notes,OTPAuth",
    "passbolt-csv": "name,username,uri,secret_clear,description,folder_parent_path",
}


def _row(heading: str) -> str:
    return ",".join(f"value{place}" for place, _ in enumerate(heading.split(",")))


@pytest.mark.parametrize("kind", HEADINGS)
@pytest.mark.parametrize("frame", ["{}", "# Comptes\n\nVoici :\n\n```csv\n{}\n```\n", "\ufeff{}"])
def test_csv_export_is_recognised(kind: str, frame: str) -> None:
    """Each column set of the export dialog, alone and pasted into Markdown."""
    text = frame.format(f"{HEADINGS[kind]}\n{_row(HEADINGS[kind])}")
    assert passbolt_export("export.md", text.encode()) is not None


@pytest.mark.parametrize("kind", HEADINGS)
def test_quoted_csv_and_markdown_table_are_recognised(kind: str) -> None:
    """Quoted cells as Passbolt writes them, and the same as a Markdown table."""
    names = HEADINGS[kind].split(",")
    quoted = ",".join(f'"{name}"' for name in names) + "\r\n" + _row(HEADINGS[kind])
    table = "\n".join(
        (
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            "| " + " | ".join("abc" for _ in names) + " |",
        )
    )
    assert passbolt_export("a.csv", quoted.encode()) is not None
    assert passbolt_export("a.md", f"Texte.\n\n{table}\n".encode()) is not None
    assert passbolt_export("a.md", quoted.encode("utf-16")) is not None


RESOURCE = {
    "id": "8e3874ae-4b40-590b-968a-418f704b9d9a",
    "resource_type_id": "a28a04cd-6f53-518a-967c-9963bf9cec51",
    "folder_parent_id": None,
    "metadata_key_type": "user_key",
    "secrets": [{"user_id": "f848277c", "data": MESSAGE}],
}


@pytest.mark.parametrize(
    ("name", "content", "shape"),
    [
        ("db.kdbx", b"\x03\xd9\xa2\x9ag\xfbK\xb5\x01\x00\x04\x00", "kdbx"),
        ("notes.md", b"\x03\xd9\xa2\x9ae\xfbK\xb5rest", "kdbx"),
        ("dump.json", json.dumps([RESOURCE]).encode(), "api-json"),
        (
            "page.md",
            (
                "# API\n\n```json\n"
                + json.dumps({"header": {"servertime": 1}, "body": RESOURCE}, indent=2)
                + "\n```\n"
            ).encode(),
            "api-json",
        ),
        (
            "kit.md",
            json.dumps(
                {"user_private_armored_key": "x", "security_token": {"code": "ABC"}}
            ).encode(),
            "api-json",
        ),
        (
            "passbolt-recovery-kit.asc",
            ARMOR.format(kind="PRIVATE KEY BLOCK").encode(),
            "recovery-kit",
        ),
        (
            "Passbolt-Recovery-Kit (1).txt.md",
            ARMOR.format(kind="PRIVATE KEY BLOCK").encode(),
            "recovery-kit",
        ),
        ("account-kit.passbolt", b"eyJkb21haW4i", "account-kit"),
        (
            "message.md",
            MESSAGE.replace(
                "MESSAGE-----\n",
                "MESSAGE-----\nVersion: OpenPGP.js\nComment: https://www.passbolt.com\n",
                1,
            ).encode(),
            "passbolt-pgp",
        ),
        (
            "backup.md",
            f"INSERT INTO `secrets` (`id`,`data`) VALUES ('1','{MESSAGE}');".encode(),
            "database-dump",
        ),
        (
            "config.md",
            b"<?php\nreturn [\n  'passbolt' => [\n    'gpg' => [\n      'serverKey' => [\n"
            b"        'fingerprint' => 'ABCD',\n",
            "passbolt-php",
        ),
    ],
)
def test_other_shapes_are_recognised(name: str, content: bytes, shape: str) -> None:
    """Databases, API answers, kits, messages and configuration, each by its own name."""
    assert passbolt_export(name, content) == shape


@pytest.mark.parametrize(
    "text",
    [
        "We keep passwords in Passbolt. Open https://passbolt.internal and log in.",
        "Les mots de passe sont dans Passbolt, voir le coffre de l'équipe.",
        "Passbolt exports CSV with the columns Title, Username, URL, Password, Notes, Group.",
        "The heading is:\n\n```\nTitle,Username,URL,Password,Notes,Group\n```\n\nNothing else.",
        "| Parameter | Type | Description |\n|---|---|---|\n| password | string | of the user |",
        "| Field | Username | Password |\n|---|---|---|\n| length | 10 | 12 |",
        "A PGP message begins with `-----BEGIN PGP MESSAGE-----`.",
        MESSAGE,
        '{"name": "x", "url": "https://example.com", "secrets": []}',
        "The API returns `resource_type_id` and `folder_parent_id`.",
        "Set `passbolt` in the list of excluded folders.",
        "",
    ],
)
def test_documentation_is_left_alone(text: str) -> None:
    """Prose, formats without data and unrelated tables are documents like others."""
    assert passbolt_export("docs/passbolt-howto.md", text.encode()) is None


@pytest.mark.parametrize(
    "value",
    [
        "https://passbolt.example.org/wiki",
        "https://PASSBOLT.example.org",
        "https://wiki.example.org/passbolt/",
        "https://wiki.example.org/a/Passbolt%2Fb",
        "https://cloud.passbolt.com/workspace",
        "https://my-passbolt.example.org",
        "https://ｐａｓｓｂｏｌｔ.example.org",
        "https://pass\u200bbolt.example.org",
        "passbolt.example.org:443",
        "group/passbolt",
        "/Passbolt/exports",
        "https://host/dav/files/me/passbolt.backup",
        "https://host/x?path=/passbolt",
    ],
)
def test_address_of_passbolt_is_refused(value: str) -> None:
    """A host label or a path segment is enough, however it is written."""
    with pytest.raises(ConfigurationError, match=r"^source wiki: url .*Passbolt"):
        refuse_passbolt_address("source wiki: url", value)


@pytest.mark.parametrize(
    "value",
    [
        "https://wiki.example.org",
        "https://bolt.example.org/pass",
        "docs/passboltless",
        "",
        "http://[bad",
    ],
)
def test_other_addresses_are_accepted(value: str) -> None:
    """Names that only contain some of the letters are none of Passbolt's."""
    refuse_passbolt_address("source wiki: url", value)


@pytest.mark.parametrize(
    "text",
    [
        "password," * 120_000,
        "|" * 1_000_000,
        '"secrets":' * 100_000,
        "-----BEGIN PGP A" * 60_000,
        "'passbolt' => " * 70_000,
        "INSERT INTO secrets " * 50_000,
        "password,url,name\n" * 55_000,
    ],
)
def test_hostile_text_costs_little(text: str) -> None:
    """A megabyte of almost-matches is decided in well under a second."""
    start = time.process_time()
    passbolt_export("a.md", text.encode())
    assert time.process_time() - start < 1.5
