"""Links and images of Markdown in, the edits out that take dangerous addresses off them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rag_assets.documents.cleaning.line_edits import Edit, gap
from rag_assets.documents.urls import carries_data_away, is_dangerous, without_tracking


class _Link:
    """An open link or image."""

    __slots__ = ("address", "is_empty", "is_image", "start", "text_end", "type")

    def __init__(self, kind: str, tag: Mapping[str, str], start: int) -> None:
        self.is_image = kind == "Image"
        self.type = tag["link_type"]
        self.address = tag["dest_url"]
        self.start = start
        self.text_end = self.text_start
        self.is_empty = True

    @property
    def text_start(self) -> int:
        return self.start + (2 if self.is_image else 1)


class MarkdownLinks:
    """Follows the links of a text (UTF-8); counts what is taken off into ``removed``."""

    def __init__(self, source: bytes, removed: Counter[str]) -> None:
        self._source = source
        self._removed = removed
        self._open: list[_Link] = []

    @property
    def inside(self) -> bool:
        """Whether a link or image is open."""
        return bool(self._open)

    def open(self, kind: str, tag: Mapping[str, str], start: int) -> None:
        """A ``Link`` or ``Image`` begins at byte ``start``."""
        self._open.append(_Link(kind, tag, start))

    def show(self, end: int) -> None:
        """Something that a reader sees ends at byte ``end``."""
        if self._open:
            self._open[-1].is_empty = False
            self._open[-1].text_end = end

    def close(self, end: int) -> list[Edit]:
        """The innermost one ends: its edits."""
        link = self._open.pop()
        if self._open:
            outer = self._open[-1]
            outer.text_end = end
            outer.is_empty = outer.is_empty and link.is_empty and not link.is_image
        return list(self._edits(link, end))

    def _edits(self, link: _Link, end: int) -> Iterator[Edit]:
        if link.type in ("Autolink", "Email"):
            if is_dangerous(link.address):
                self._removed["link"] += 1
                yield Edit(link.start, end, gap(self._source, link.start, end))
            return
        takes_along = link.is_image and carries_data_away(link.address)
        if is_dangerous(link.address) or takes_along or (link.is_empty and not link.is_image):
            self._removed["image" if link.is_image else "link"] += 1
            if link.is_empty:
                yield Edit(link.start, end, gap(self._source, link.start, end))
            else:
                yield Edit(link.start, link.text_start)
                yield Edit(link.text_end, end)
        elif link.type == "Inline":
            yield from self._without_tracking(link.address, link.text_end, end)

    def definitions(self, found: Mapping[str, Any]) -> Iterator[Edit]:
        """Edits of reference definitions; one with a dangerous address becomes blank lines."""
        for definition in found.values():
            start, end = definition["span"]["start"], definition["span"]["end"]
            if is_dangerous(definition["dest"]):
                self._removed["link"] += 1
                yield Edit(start, end, "\n" * self._source.count(b"\n", start, end))
            else:
                yield from self._without_tracking(definition["dest"], start, end)

    def _without_tracking(self, address: str, start: int, end: int) -> Iterator[Edit]:
        """The address between ``start`` and ``end``, if it is spelt there as it reads."""
        cleaned = without_tracking(address)
        if cleaned is address:
            return
        raw = address.encode("utf-8")
        place = self._source.find(raw, start, end)
        if place >= 0:
            self._removed["tracker"] += 1
            yield Edit(place, place + len(raw), cleaned)
