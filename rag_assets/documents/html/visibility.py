"""An element's attributes and declarations in, whether a reader of the page sees its text out.

Some properties hide an element with all that it holds (``Hiding.subtree``); others are inherited
and may be undone by an element inside (colour, font size, ``visibility``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rag_assets.documents.html.css import Declarations

OFF_SCREEN_PIXELS: Final = 500
"""Text moved so far to the left or upwards is out of sight."""
_FAR_PIXELS: Final = 3_000
_LEAST_OPACITY: Final = 0.05
_LEAST_FONT_PIXELS: Final = 1.0
_LIKE_COLOURS: Final = 8
"""Colours whose channels (0 to 255) differ by no more than this are alike to the eye."""

Colour = tuple[int, int, int]
_WHITE: Final[Colour] = (255, 255, 255)
_NAMED: Final[Mapping[str, Colour]] = {
    "white": _WHITE,
    "snow": (255, 250, 250),
    "ivory": (255, 255, 240),
    "black": (0, 0, 0),
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "lime": (0, 255, 0),
    "blue": (0, 0, 255),
    "navy": (0, 0, 128),
    "yellow": (255, 255, 0),
    "gray": (128, 128, 128),
    "grey": (128, 128, 128),
    "silver": (192, 192, 192),
    "whitesmoke": (245, 245, 245),
}
_HEX: Final = re.compile(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})\b")
_RGB: Final = re.compile(r"rgba?\(([^)]*)\)")
_LENGTH: Final = re.compile(r"(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([a-z%]*)")
_PIXELS: Final[Mapping[str, float]] = {
    "": 1, "px": 1, "em": 16, "rem": 16, "ch": 8, "ex": 8, "pt": 4 / 3, "pc": 16, "cm": 37.8,
    "mm": 3.78, "in": 96, "vw": 10, "vh": 10, "%": 10,
}  # fmt: skip
_MOVED: Final = re.compile(r"translate(?:x|y|3d)?\(([^)]*)\)")
_SCALED_AWAY: Final = re.compile(r"scale(?:x|y|3d)?\(\s*0*\.?0*\s*[,)]")
_NO_FONT_SIZE: Final = re.compile(r"(?:^|\s)0*\.?0+(?:px|pt|em|rem|%)?(?:[\s/]|$)")
_CLIPPED: Final = re.compile(
    r"rect\(\s*[01](?:px)?\s*,?\s*[01](?:px)?\s*,?\s*[01](?:px)?\s*,?\s*[01](?:px)?\s*\)"
)
_CLIPPED_PATH: Final = re.compile(r"inset\(\s*(?:50|100)%|circle\(\s*0|polygon\(\s*0\s+0\s*\)")
_NO_OPACITY: Final = re.compile(r"opacity\(\s*0*\.?0*%?\s*\)")


@dataclass(frozen=True, slots=True)
class Look:
    """What an element hands down to those inside it."""

    colour: Colour | None = None
    """None: the page's own."""
    transparent: bool = False
    background: Colour | None = None
    """None: unknown."""
    invisible: bool = False
    """``visibility``."""
    tiny: bool = False
    """The font size is nothing."""

    @property
    def readable(self) -> bool:
        """Whether text directly inside can be seen."""
        if self.invisible or self.tiny or self.transparent:
            return False
        return (
            self.colour is None
            or self.background is None
            or max(abs(a - b) for a, b in zip(self.colour, self.background, strict=True))
            > _LIKE_COLOURS
        )


WHITE_PAGE: Final = Look(background=_WHITE)
UNKNOWN_PAGE: Final = Look()


def hides_all(attributes: Mapping[str, str], style: Declarations) -> bool:
    """Whether the element and all inside it is out of sight, whatever is said inside."""
    if "hidden" in attributes and style.get("display", "none") == "none":
        return True
    if attributes.get("aria-hidden", "").strip().lower() == "true":
        # Shown perhaps, but it is decoration by the author's own word: what a voice skips.
        return True
    return bool(style) and (_is_off(style) or _is_boxed_away(style) or _is_moved_away(style))


def _is_off(style: Declarations) -> bool:
    opacity = _number(style.get("opacity", ""))
    return (
        style.get("display") == "none"
        or style.get("content-visibility") == "hidden"
        or style.get("mso-hide") == "all"
        or (opacity is not None and opacity <= _LEAST_OPACITY)
        or style.get("zoom") in ("0", "0%")
        or style.get("scale") == "0"
        or _NO_OPACITY.search(style.get("filter", "")) is not None
    )


def _is_boxed_away(style: Declarations) -> bool:
    if _CLIPPED.search(style.get("clip", "")) or _CLIPPED_PATH.search(style.get("clip-path", "")):
        return True
    overflows = {style.get(name, "") for name in ("overflow", "overflow-x", "overflow-y")}
    if not any(word in value for value in overflows for word in ("hidden", "clip")):
        return False
    sizes = (_pixels(style.get(n, "")) for n in ("width", "height", "max-width", "max-height"))
    return any(size is not None and size <= 1 for size in sizes)


def _is_moved_away(style: Declarations) -> bool:
    for name in ("text-indent", "margin-left", "margin-top"):
        moved = _pixels(style.get(name, ""))
        if moved is not None and moved <= -OFF_SCREEN_PIXELS:
            return True
    if style.get("position") in ("absolute", "fixed", "relative"):
        for name in ("left", "top", "right", "bottom"):
            moved = _pixels(style.get(name, ""))
            if moved is not None and (moved <= -OFF_SCREEN_PIXELS or moved >= _FAR_PIXELS):
                return True
    transform = style.get("transform", "")
    if _SCALED_AWAY.search(transform):
        return True
    for match in _MOVED.finditer(transform):
        for part in match[1].split(","):
            moved = None if "%" in part else _pixels(part)
            if moved is not None and moved <= -OFF_SCREEN_PIXELS:
                return True
    return False


def look_inside(outer: Look, attributes: Mapping[str, str], style: Declarations) -> Look:
    """What holds inside an element that stands in ``outer``."""
    if not style and "bgcolor" not in attributes and "color" not in attributes:
        return outer
    changes: dict[str, object] = {}
    visibility = style.get("visibility")
    if visibility is not None and visibility != "inherit":
        changes["invisible"] = visibility in ("hidden", "collapse")
    tiny = _tiny(style)
    if tiny is not None:
        changes["tiny"] = tiny
    colour = style.get("color", attributes.get("color", "").strip().lower())
    if colour and colour not in ("inherit", "currentcolor"):
        rgb, alpha = _colour(colour)
        changes.update(colour=rgb, transparent=alpha <= _LEAST_OPACITY)
    fill = style.get("-webkit-text-fill-color")
    if fill:
        changes["transparent"] = _colour(fill)[1] <= _LEAST_OPACITY
    if "text" in (style.get("background-clip"), style.get("-webkit-background-clip")):
        changes["transparent"] = False
    background = _background(attributes, style)
    if background is not None:
        changes["background"] = background[0]
    return replace(outer, **changes) if changes else outer  # type: ignore[arg-type]


def _tiny(style: Declarations) -> bool | None:
    """Whether the font is too small to see; None when its size is not said."""
    size = _pixels(style.get("font-size", ""))
    if size is not None:
        return size < _LEAST_FONT_PIXELS or style["font-size"] in ("1px", "1%")
    return True if _NO_FONT_SIZE.search(style.get("font", "")) else None


def _background(attributes: Mapping[str, str], style: Declarations) -> tuple[Colour | None] | None:
    """The background in a tuple, (None,) when it cannot be known; None when it is the outer one."""
    given = style.get("background-color") or style.get("background") or attributes.get("bgcolor")
    if not given or given in ("none", "transparent", "inherit", "initial"):
        return None
    if "url(" in given or "gradient" in given:
        return (None,)
    rgb, alpha = _colour(given.strip().lower())
    return (rgb,) if alpha > _LEAST_OPACITY else None


def _colour(value: str) -> tuple[Colour | None, float]:
    """Channels (0 to 255; None when not understood) and opacity (0 to 1)."""
    if value.startswith("transparent"):
        return None, 0.0
    match = _HEX.search(value)
    if match:
        digits = match[1] if len(match[1]) > 4 else "".join(2 * digit for digit in match[1])
        parts = [int(digits[i : i + 2], 16) for i in range(0, len(digits), 2)]
        return (parts[0], parts[1], parts[2]), parts[3] / 255 if len(parts) > 3 else 1.0
    match = _RGB.search(value)
    if match:
        return _rgb(match[1])
    return next((_NAMED[word] for word in value.split() if word in _NAMED), None), 1.0


def _rgb(arguments: str) -> tuple[Colour | None, float]:
    parts = [_number(part) for part in re.split(r"[\s,/]+", arguments.strip())]
    if not 3 <= len(parts) <= 4 or None in parts:
        return None, 1.0
    numbers = [part for part in parts if part is not None]
    red, green, blue = (min(255, max(0, int(number))) for number in numbers[:3])
    return (red, green, blue), numbers[3] if len(numbers) == 4 else 1.0


def _number(value: str) -> float | None:
    match = _LENGTH.match(value)
    if match is None:
        return None
    return float(match[1]) / (100 if match[2] == "%" else 1)


def _pixels(value: str) -> float | None:
    match = _LENGTH.match(value.strip())
    if match is None or match[2] not in _PIXELS:
        return None
    return float(match[1]) * _PIXELS[match[2]]
