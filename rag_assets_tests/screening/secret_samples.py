"""Documents that hold a secret; every value is drawn at run time from a seeded alphabet."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE32 = string.ascii_uppercase + "234567"


@dataclass(frozen=True, slots=True)
class WithSecret:
    """One document and the shape of the secret in it."""

    text: str
    kind: str
    held_out: bool


class Draw:
    """Random strings of the alphabets that keys are made of."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, alphabet: str, size: int) -> str:
        return "".join(self.random.choice(alphabet) for _ in range(size))

    def base64(self, size: int) -> str:
        return base64.b64encode(self.random.randbytes(size)).decode()

    def uuid(self) -> str:
        return "-".join(self.of(HEX, n) for n in (8, 4, 4, 4, 12))

    def password(self) -> str:
        words = [
            "Soleil",
            "Montagne",
            "Kanguru",
            "Violet",
            "Tabouret",
            "Brigade",
            "Harmony",
            "Pelican",
        ]
        return self.random.choice(
            [
                self.of(ALNUM, 12),
                self.of(ALNUM + "!@#$%&*", 14) + "7",
                self.random.choice(words) + str(self.random.randrange(10, 9999)) + "!",
                self.random.choice(words).lower() + "_" + self.of(string.digits, 3),
                self.of(string.ascii_lowercase, 5) + self.of(string.digits, 4),
                self.random.choice(words) + "#" + self.random.choice(words),
                self.of(string.ascii_letters, 4)
                + "-"
                + self.of(ALNUM, 4)
                + "-"
                + self.of(string.digits, 4),
            ]
        )

    def key(self) -> str:
        return self.of(ALNUM, self.random.randrange(24, 41))

    def pem(self, lines: int = 6) -> str:
        return "\n".join(self.of(ALNUM + "+/", 64) for _ in range(lines))

    def jwt(self) -> str:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        head = part({"alg": "HS256", "typ": "JWT"})
        body = part(
            {"sub": self.of(string.digits, 8), "name": self.of(ALNUM, 6), "iat": 1700000000}
        )
        return f"{head}.{body}.{self.of(URLSAFE, 43)}"


def _block(kind: str, body: str) -> str:
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


# Prefixes are written in two pieces so that no scanner of this repository takes them for keys.
FORMATS: dict[str, Callable[[Draw], str]] = {
    "age": lambda d: "AGE-SECRET-" + "KEY-1" + d.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "pgp message": lambda d: _block("PGP MESSAGE", "Version: GnuPG v2\n\n" + d.pem()),
    "pgp private": lambda d: _block("PGP PRIVATE KEY BLOCK", "\n" + d.pem()),
    "openssh": lambda d: _block("OPENSSH PRIVATE KEY", d.pem()),
    "rsa": lambda d: _block("RSA PRIVATE KEY", d.pem()),
    "pkcs8": lambda d: _block("PRIVATE KEY", d.pem()),
    "ec": lambda d: _block("EC PRIVATE KEY", d.pem(3)),
    "encrypted pkcs8": lambda d: _block("ENCRYPTED PRIVATE KEY", d.pem()),
    "putty": lambda d: (
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 2\n"
        + d.pem(2)
        + "\nPrivate-Lines: 1\n"
        + d.of(ALNUM, 48)
    ),
    "openai": lambda d: "sk-" + d.of(ALNUM, 48),
    "openai project": lambda d: "sk-" + "proj-" + d.of(URLSAFE, 80),
    "anthropic": lambda d: "sk-" + "ant-api03-" + d.of(URLSAFE, 93) + "AA",
    "github classic": lambda d: "gh" + "p_" + d.of(ALNUM, 36),
    "github server": lambda d: "gh" + "s_" + d.of(ALNUM, 36),
    "github fine": lambda d: "github" + "_pat_" + d.of(ALNUM, 22) + "_" + d.of(ALNUM, 59),
    "gitlab": lambda d: "gl" + "pat-" + d.of(URLSAFE, 20),
    "gitlab runner": lambda d: "gl" + "rt-" + d.of(URLSAFE, 20),
    "slack bot": lambda d: (
        "xox"
        + "b-"
        + d.of(string.digits, 12)
        + "-"
        + d.of(string.digits, 13)
        + "-"
        + d.of(ALNUM, 24)
    ),
    "slack webhook": lambda d: (
        "https://hooks.slack.com/"
        + "services/T"
        + d.of(UPPER, 10)
        + "/B"
        + d.of(UPPER, 10)
        + "/"
        + d.of(ALNUM, 24)
    ),
    "aws key": lambda d: "AK" + "IA" + d.of(BASE32, 16),
    "aws secret": lambda d: "aws_secret_access_key = " + d.of(ALNUM + "/+", 40),
    "google": lambda d: "AI" + "za" + d.of(URLSAFE, 35),
    "google client secret": lambda d: "GOC" + "SPX-" + d.of(URLSAFE, 28),
    "service account": lambda d: json.dumps(
        {
            "type": "service_account",
            "private_key": _block("PRIVATE KEY", d.pem()) + "\n",
            "client_email": "a@b.iam.gserviceaccount.com",
        },
        indent=1,
    ),
    "azure storage": lambda d: (
        "DefaultEndpointsProtocol=https;AccountName=store;AccountKey="
        + d.base64(64)
        + ";EndpointSuffix=core.windows.net"
    ),
    "azure sas": lambda d: (
        "https://store.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig=" + d.of(ALNUM, 43) + "%3D"
    ),
    "stripe": lambda d: "sk_" + "live_" + d.of(ALNUM, 24),
    "stripe webhook": lambda d: "wh" + "sec_" + d.of(ALNUM, 32),
    "twilio": lambda d: "S" + "K" + d.of(HEX, 32),
    "sendgrid": lambda d: "S" + "G." + d.of(URLSAFE, 22) + "." + d.of(URLSAFE, 43),
    "npm": lambda d: "np" + "m_" + d.of(ALNUM, 36),
    "npmrc": lambda d: "//registry.example/:_authToken=" + d.uuid(),
    "pypi": lambda d: "py" + "pi-AgEIcHlwaS5vcmc" + d.of(URLSAFE, 120),
    "huggingface": lambda d: "h" + "f_" + d.of(string.ascii_letters, 34),
    "telegram": lambda d: d.of("123456789", 10) + ":AA" + d.of(URLSAFE, 33),
    "discord": lambda d: "M" + d.of(ALNUM, 25) + "." + d.of(ALNUM, 6) + "." + d.of(URLSAFE, 38),
    "mailgun": lambda d: "ke" + "y-" + d.of(HEX, 32),
    "mailchimp": lambda d: d.of(HEX, 32) + "-us12",
    "databricks": lambda d: "da" + "pi" + d.of(HEX, 32),
    "digitalocean": lambda d: "do" + "p_v1_" + d.of(HEX, 64),
    "vault": lambda d: "hv" + "s." + d.of(URLSAFE, 24) + d.of(ALNUM, 60),
    "jwt": lambda d: d.jwt(),
    "google oauth": lambda d: "ya" + "29." + d.of(URLSAFE, 60),
    "doppler": lambda d: "dp." + "pt." + d.of(ALNUM, 43),
    "grafana": lambda d: "gl" + "sa_" + d.of(ALNUM, 32) + "_" + d.of(HEX, 8),
    "sentry": lambda d: "sn" + "trys_" + d.of(ALNUM, 80),
    "linear": lambda d: "lin" + "_api_" + d.of(ALNUM, 40),
    "notion": lambda d: "nt" + "n_" + d.of(ALNUM, 46),
    "old notion": lambda d: "secret" + "_" + d.of(ALNUM, 43),
    "scaleway": lambda d: (
        "SCW_ACCESS_KEY=SC" + "W" + d.of(UPPER, 17) + "\nSCW_SECRET_KEY=" + d.uuid()
    ),
    "ovh": lambda d: (
        "application_key=" + d.of(ALNUM, 16) + "\napplication_secret=" + d.of(ALNUM, 32)
    ),
    "postgres": lambda d: f"postgres://app:{d.of(ALNUM, 12)}@db.internal:5432/app",
    "mongodb": lambda d: f"mongodb+srv://root:{d.of(ALNUM, 10)}@cluster0.abcde.mongodb.net/x",
    "redis": lambda d: f"redis://:{d.of(ALNUM, 16)}@cache.internal:6379/0",
    "amqp": lambda d: f"amqp://queue:{d.of(ALNUM, 11)}@mq.internal:5672/",
    "basic auth url": lambda d: f"https://robot:{d.of(ALNUM, 14)}@git.internal/team/repo.git",
    "mysql dsn": lambda d: f"mysql+pymysql://web:{d.of(ALNUM, 9)}@10.0.0.5/shop",
    "sqlserver": lambda d: f"Server=sql;Database=crm;User Id=sa;Password={d.of(ALNUM, 12)};",
    "jdbc": lambda d: f"jdbc:postgresql://db/app?user=web&password={d.of(ALNUM, 12)}",
    "netrc": lambda d: f"machine git.internal login deploy password {d.of(ALNUM, 15)}",
    "htpasswd": lambda d: "admin:$apr1$" + d.of(ALNUM, 8) + "$" + d.of(ALNUM + "./", 22),
    "shadow": lambda d: (
        "root:$6$" + d.of(ALNUM, 12) + "$" + d.of(ALNUM + "./", 86) + ":19000:0:99999:7:::"
    ),
    "bcrypt": lambda d: "$2b$" + "12$" + d.of(ALNUM + "./", 53),
    "kubeconfig": lambda d: "users:\n- name: admin\n  user:\n    client-key-data: " + d.base64(120),
    "kube token": lambda d: "users:\n- name: ci\n  user:\n    token: " + d.of(ALNUM, 48),
    "wifi code": lambda d: f"WIFI:T:WPA;S:Bureau;P:{d.of(ALNUM, 12)};;",
    "wpa": lambda d: f'network={{\n  ssid="Atelier"\n  psk="{d.of(ALNUM, 14)}"\n}}',
    "totp": lambda d: "otpauth://totp/Git:me?secret=" + d.of(BASE32, 32) + "&issuer=Git",
    "bearer": lambda d: f'curl -H "Authorization: Bearer {d.of(ALNUM, 40)}" https://api.internal',
    "basic header": lambda d: (
        "Authorization: Basic " + base64.b64encode(f"me:{d.of(ALNUM, 12)}".encode()).decode()
    ),
    "private token header": lambda d: "PRIVATE-TOKEN: " + d.of(ALNUM, 26),
    "curl user": lambda d: f"curl -u deploy:{d.of(ALNUM, 12)} https://files.internal/",
    "sshpass": lambda d: f"sshpass -p '{d.of(ALNUM, 11)}' ssh root@10.0.0.2",
    "mysql option": lambda d: f"mysql -u root -p{d.of(ALNUM, 12)} shop",
    "env file": lambda d: f"DB_PASSWORD={d.of(ALNUM, 14)}\nSECRET_KEY={d.of(ALNUM, 50)}",
    "pgpassword": lambda d: f"PGPASSWORD={d.of(ALNUM, 12)} psql -h db",
    "yaml key": lambda d: f"app:\n  api_key: {d.of(ALNUM, 32)}",
    "json key": lambda d: '{"client_id": "web", "client_secret": "' + d.of(ALNUM, 36) + '"}',
    "php config": lambda d: f"define('DB_PASSWORD', '{d.of(ALNUM, 14)}');",
    "python config": lambda d: f"SECRET_KEY = '{d.of(ALNUM + '!@#$%^&*(-_=+)', 50)}'",
    "docker login": lambda d: f"docker login -u ci -p {d.of(ALNUM, 16)} registry.internal",
    "docker auth": lambda d: (
        '{"auths": {"registry.internal": {"auth": "'
        + base64.b64encode(f"ci:{d.of(ALNUM, 12)}".encode()).decode()
        + '"}}}'
    ),
    "atlassian": lambda d: "ATA" + "TT3xFfGF0" + d.of(URLSAFE, 120),
    "terraform": lambda d: d.of(ALNUM, 14) + ".atlas" + "v1." + d.of(URLSAFE, 67),
    "shopify": lambda d: "shp" + "at_" + d.of(HEX, 32),
    "newrelic": lambda d: "NR" + "AK-" + d.of(UPPER, 27),
    "tailscale": lambda d: "tskey" + "-auth-" + d.of(ALNUM, 12) + "CNTRL-" + d.of(ALNUM, 32),
    "dockerhub": lambda d: "dckr" + "_pat_" + d.of(URLSAFE, 27),
    "airtable": lambda d: "pa" + "t" + d.of(ALNUM, 14) + "." + d.of(HEX, 64),
    "wireguard": lambda d: "[Interface]\nPrivateKey = " + d.base64(32),
    "groq": lambda d: "gs" + "k_" + d.of(ALNUM, 52),
    "replicate": lambda d: "r" + "8_" + d.of(ALNUM, 37),
    "brevo": lambda d: "xkey" + "sib-" + d.of(HEX, 64) + "-" + d.of(ALNUM, 16),
    "figma": lambda d: "fig" + "d_" + d.of(URLSAFE, 40),
    "postman": lambda d: "PM" + "AK-" + d.of(HEX, 24) + "-" + d.of(HEX, 34),
    "bookstack": lambda d: f"Authorization: Token {d.of(ALNUM, 32)}:{d.of(ALNUM, 32)}",
}

PHRASINGS = (
    "Mot de passe : {p}",
    "mot de passe: {p}",
    "Le mot de passe est {p}",
    "**Mot de passe** : `{p}`",
    "mdp = {p}",
    "MDP : {p}",
    "mdp: {p}",
    "Identifiant : jdupont\nMot de passe : {p}",
    "identifiant / mot de passe : jdupont / {p}",
    "Login : admin, mot de passe : {p}",
    "Le mot de passe du Wi-Fi invité est : {p}",
    "Mot de passe du compte de service : {p}",
    "- Mot de passe provisoire : {p}",
    "Votre mot de passe temporaire est « {p} »",
    "Mot de passe administrateur = {p}",
    "Code d'accès : {p}",
    "Code secret : {p}",
    "Clé Wi-Fi : {p}",
    "Clé WPA2 : {p}",
    "Phrase secrète : {p}",
    "| Compte | Mot de passe |\n|---|---|\n| jdupont | {p} |",
    "| Serveur | Utilisateur | MDP |\n|---|---|---|\n| srv1 | root | {p} |",
    "Pour se connecter, utiliser le mot de passe {p_quoted}.",
    "MOT DE PASSE : {p}",
    "<b>Mot de passe</b> : <code>{p}</code>",
    "Mot de passe\u00a0: {p}",
    "Mot de passe →  {p}",
    "Clé secrète : {k}",
    "Clé d'API : {k}",
    "clé privée = {k}",
    "Jeton d'accès : {k}",
    "Jeton : {k}",
    "Password: {p}",
    "password = {p}",
    "password: {p}",
    "The password is {p}",
    "**Password:** `{p}`",
    "Username: jsmith\nPassword: {p}",
    "Login: admin / Password: {p}",
    "user: root, pwd: {p}",
    "The admin password for the staging server is: {p}",
    'Your temporary password is "{p}".',
    "Default password = {p}",
    "pass phrase: {p}",
    "Passphrase: {p}",
    "Wi-Fi password: {p}",
    "WiFi key: {p}",
    "Credentials: admin / {p}",
    "Credentials: admin:{p}",
    "| Host | User | Password |\n|---|---|---|\n| db1 | root | {p} |",
    "user,password\njsmith,{p}",
    "password\t{p}",
    'db_password: "{p}"',
    "const password = '{p}';",
    'String password = "{p}";',
    "MYSQL_ROOT_PASSWORD: {p}",
    "spring.datasource.password={p}",
    "<password>{p}</password>",
    "export ADMIN_PASSWORD='{p}'",
    "--password={p}",
    "--password {p}",
    "API key: {k}",
    'api_key = "{k}"',
    "x-api-key: {k}",
    "apiKey: '{k}'",
    "Access token: {k}",
    "auth_token={k}",
    "Client secret: {k}",
    "token: {k}",
    'SECRET_KEY = "{k}"',
    "secret = '{k}'",
    "Encryption key: {k}",
    "The API token is {k}",
    "http://wiki.internal/?access_token={k}",
    "access_key={k}",
)

_INTRODUCTIONS = (
    "# Runbook\n\nHow to restart the service.\n\n{s}\n\nThen call the helpdesk.\n",
    "# Procédure\n\nComment relancer le service.\n\n{s}\n\nPuis prévenir l'assistance.\n",
    "---\ntitle: Accès\n---\n\n> {s}\n",
    "```\n{s}\n```\n",
    "<!-- {s} -->\n\nVoir l'annexe.\n",
    "{s}",
)


def secret_documents() -> Iterator[WithSecret]:
    """Each format three times and each phrasing four times, in changing surroundings."""
    draw = Draw(7)
    for place, (kind, make) in enumerate(FORMATS.items()):
        for round_ in range(3):
            text = _surround(make(draw), place + round_)
            yield WithSecret(text, kind, (place + round_) % 2 == 1)
    for place, phrasing in enumerate(PHRASINGS):
        for round_ in range(4):
            password = draw.password()
            secret = phrasing.format(p=password, k=draw.key(), p_quoted=f"« {password} »")
            yield WithSecret(_surround(secret, place + round_), phrasing, (place + round_) % 2 == 1)


def _surround(secret: str, place: int) -> str:
    frame = _INTRODUCTIONS[place % len(_INTRODUCTIONS)]
    if "\n" in secret and ">" in frame:
        frame = _INTRODUCTIONS[0]
    return frame.replace("{s}", secret)
