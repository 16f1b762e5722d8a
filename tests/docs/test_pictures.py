"""The pictures of the pages are those that `docs/pictures/draw.py` draws, and can be read on light and dark pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
CONTRAST_MIN = 4.5
"""What WCAG asks of text."""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", PICTURES / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


draw = load()


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_as_drawn_and_says_what_it_shows(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert text == draw.drawn(name), "draw it anew: python docs/pictures/draw.py"
    title = ElementTree.fromstring(text).find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text


def test_no_words_leave_the_paper() -> None:
    with pytest.raises(AssertionError, match="leaves the paper"):
        draw.text(700, 10, "too long for here")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_is_readable_on_the_paper_and_in_every_box(scheme: str) -> None:
    light, dark = draw.STYLE.split("@media")
    fills = dict(re.findall(r"\.(\w+) \{ fill: (#\w{6})", light if scheme == "light" else dark))
    assert contrast(fills["muted"], fills["paper"]) >= CONTRAST_MIN
    for box in ("paper", "chunk", "other", "tail", "new", "gone", "header"):
        assert contrast(fills["ink"], fills[box]) >= CONTRAST_MIN, box
