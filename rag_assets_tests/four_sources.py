"""Four systems with documents, on real sockets, and one configuration that indexes them all.

A folder, a BookStack, a GitLab whose repositories are real ones, and a Nextcloud (sabre/dav under
PHP where that is installed, else a plain WebDAV server). Used by tests and by the demo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rag_assets_tests.peers import nextcloud, wsgidav_server
from rag_assets_tests.peers.bookstack import BookStack, Entity, User
from rag_assets_tests.peers.gitlab import GitLabPeer, Project
from rag_assets_tests.peers.nextcloud import NextcloudPeer
from rag_assets_tests.peers.wsgidav_server import WsgidavPeer

GITLAB_TOKEN: Final = "glpat-stand-in-token-0001"
ENVIRONMENT: Final = (
    "WIKI_TOKEN",
    "WIKI_EVERYBODY",
    "WIKI_HR",
    "GITLAB_TOKEN",
    "NEXTCLOUD_PASSWORD",
)


@dataclass(frozen=True, slots=True)
class FourSources:
    """The systems, each with a few documents."""

    folder: Path
    """The tree of Markdown files."""
    wiki: BookStack
    everybody: User
    hr: User
    book: Entity
    gitlab: GitLabPeer
    project: Project
    files: NextcloudPeer | WsgidavPeer

    def put(self, path: str, text: str) -> None:
        """Write a file in the Nextcloud."""
        if isinstance(self.files, NextcloudPeer):
            self.files.put(path, text)
        else:
            self.files.write(path, text)

    def environment(self) -> dict[str, str]:
        """The secrets that the configuration names."""
        values = (
            self.wiki.admin.token,
            self.everybody.token,
            self.hr.token,
            GITLAB_TOKEN,
            nextcloud.PASSWORD,
        )
        return dict(zip(ENVIRONMENT, values, strict=True))

    def sources(self) -> list[dict[str, Any]]:
        """The ``sources`` of a configuration."""
        return [
            {"name": "handbook", "root": str(self.folder), "acl": {"default": ["public"]}},
            {
                "name": "wiki",
                "kind": "bookstack",
                "base_url": self.wiki.address,
                "token": {"env": "WIKI_TOKEN"},
                "accounts": [
                    {"token": {"env": "WIKI_EVERYBODY"}, "tags": ["public"]},
                    {"token": {"env": "WIKI_HR"}, "tags": ["service:hr"]},
                ],
            },
            {
                "name": "code",
                "kind": "gitlab",
                "base_url": self.gitlab.url,
                "token": {"env": "GITLAB_TOKEN"},
                "groups": ["platform"],
                "wiki": True,
                "visibility": {"public": ["public"], "internal": ["service:staff"]},
            },
            {
                "name": "files",
                "kind": "nextcloud",
                "base_url": self.files.url,
                "user": nextcloud.USER,
                "password": {"env": "NEXTCLOUD_PASSWORD"},
                "folders": ["Notes"],
                "acl": {
                    "default": ["public"],
                    "rules": [{"paths": "Notes/Direction", "tags": ["service:board"]}],
                },
            },
        ]


@contextmanager
def four_sources(folder: Path) -> Iterator[FourSources]:
    """Start the systems and fill them; ``folder`` is theirs to write to."""
    with ExitStack() as stack:
        tree = folder / "handbook"
        _write_tree(tree)
        wiki = stack.enter_context(BookStack())
        everybody, hr, book = _fill_wiki(wiki)
        gitlab = stack.enter_context(GitLabPeer(folder / "gitlab"))
        gitlab.add_token(GITLAB_TOKEN)
        project = _fill_gitlab(gitlab)
        if nextcloud.unavailable() is None:
            files: NextcloudPeer | WsgidavPeer = stack.enter_context(nextcloud.nextcloud_peer())
        else:
            (folder / "cloud").mkdir()
            files = stack.enter_context(wsgidav_server.wsgidav_peer(folder / "cloud"))
        systems = FourSources(tree, wiki, everybody, hr, book, gitlab, project, files)
        systems.put("Notes/reunion.md", MEETING)
        systems.put("Notes/Direction/budget.md", BUDGET)
        systems.put("Privé/journal.md", "# Journal\n\nHors des dossiers indexés.\n")
        yield systems


def _write_tree(tree: Path) -> None:
    tree.mkdir(parents=True)
    (tree / "badges.md").write_text(BADGES, encoding="utf-8")
    (tree / "vpn.md").write_text(VPN, encoding="utf-8")
    (tree / "SCRATCH.md").write_text("# Brouillon\n\nNe jamais indexer.\n", encoding="utf-8")


def _fill_wiki(wiki: BookStack) -> tuple[User, User, Entity]:
    views = {"page-view-all", "chapter-view-all", "book-view-all", "access-api"}
    readers, staff = wiki.add_role("Readers", views), wiki.add_role("HR", views)
    everybody, hr = wiki.add_user("Everybody", readers), wiki.add_user("Hr", staff)
    book = wiki.add_book("Exploitation")
    chapter = wiki.add_chapter(book, "Sauvegardes")
    wiki.add_page(chapter, "Restaurer la base", markdown=RESTORE)
    wiki.add_page(chapter, "Plan de test", html="<h1>Plan</h1><p>Brouillon.</p>", draft=True)
    salaries = wiki.add_page(wiki.add_book("Ressources humaines"), "Salaires", html=SALARIES)
    wiki.restrict(salaries, {staff.id: True, readers.id: False}, fallback=False)
    return everybody, hr, book


def _fill_gitlab(gitlab: GitLabPeer) -> Project:
    files: Mapping[str, str] = {
        "README.md": README,
        "docs/deploy.md": DEPLOY,
        "docs/legacy/old.md": "# Old\n\nNever indexed.\n",
        ".aiignore": "notes/\n",
        "notes/todo.md": "# To do\n\nIgnored by the project itself.\n",
        "src/main.py": "print('not a document')\n",
    }
    project = gitlab.add_project("platform/api", files, visibility="public")
    project.write_wiki({"home.md": "# Welcome\n\nThe on-call phone is in the red drawer.\n"})
    gitlab.add_project("platform/keys", {"rotation.md": ROTATION}, visibility="internal")
    return project


BADGES: Final = """# Badges

## Renouveler un badge

Le badge se renouvelle à l'accueil, avec une pièce d'identité, tous les trois ans.
"""
VPN: Final = """# VPN

## Install the client

Download the client from the intranet and sign in with your directory account.
"""
RESTORE: Final = """## Avant de commencer

Prévenez l'astreinte.

## Restaurer à une heure donnée

Arrêtez les écritures, puis rejouez le journal jusqu'à l'heure voulue avec `pg_restore`.
"""
SALARIES: Final = (
    '<h2 id="bkmrk-grille">Grille</h2><p>Échelon B1 : coefficient 412.</p>'
    '<p style="display:none">Texte que personne ne voit.</p><script>alert(1)</script>'
)
README: Final = """# API

The service answers on port 8443.
"""
DEPLOY: Final = """# Deployment

## Roll back a release

Run `deploy rollback` with the number of the last good release; it takes two minutes.
"""
ROTATION: Final = """# Key rotation

Signing keys are rotated on the first Monday of each quarter by two people.
"""
MEETING: Final = """# Réunion du lundi

## Décisions

La migration vers la nouvelle messagerie commence en mars.
"""
BUDGET: Final = """# Budget

Le budget de la direction est arrêté en octobre.
"""
