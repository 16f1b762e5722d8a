"""The pictures of the pages are those that `docs/pictures/draw.py` draws."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
draw = SimpleNamespace(**runpy.run_path(str(PICTURES / "draw.py")))


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_as_drawn_and_labelled(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert text == draw.drawn(name), "draw it anew: python docs/pictures/draw.py"
    assert ElementTree.fromstring(text).find("{http://www.w3.org/2000/svg}title").text


def test_no_words_leave_the_paper() -> None:
    with pytest.raises(AssertionError, match="leaves the paper"):
        draw.text(700, 10, "too long for here")
