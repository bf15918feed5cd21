"""Each operator's example on the reference page prints what its picture shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import streamcp as sc
from tests.docs.operator_pictures import IMAGES, PAGE, Picture, draw, pictures
from tests.docs.pages import programs_in

TEXT = PAGE.read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.+?)$(.*?)(?=^##? |\Z)", re.MULTILINE | re.DOTALL)


def _examples() -> list[tuple[Picture, str]]:
    """Each picture with the program of its section."""
    found: list[tuple[Picture, str]] = []
    for _, body in SECTION.findall(TEXT):
        shown = pictures(body)
        programs = programs_in(body)
        assert len(shown) == len(programs), body
        found += zip(shown, programs, strict=True)
    return found


EXAMPLES = _examples()
NAMES = [picture.name for picture, _ in EXAMPLES]


def test_every_picture_of_the_page_belongs_to_an_example() -> None:
    assert [picture.name for picture in pictures(TEXT)] == NAMES
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(("picture", "program"), EXAMPLES, ids=NAMES)
def test_example_prints_what_its_picture_shows(
    picture: Picture, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "example.py"
    file.write_text(program, encoding="utf-8")
    runpy.run_path(str(file), run_name="example")
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(picture.outputs)


@pytest.mark.parametrize(("picture", "program"), EXAMPLES, ids=NAMES)
def test_picture_shows_the_records_of_its_example(picture: Picture, program: str) -> None:
    missing = [
        part for text in picture.inputs for part in text.split() if not _occurs(part, program)
    ]
    assert not missing


def _occurs(part: str, program: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", program) is not None


@pytest.mark.parametrize("picture", [picture for picture, _ in EXAMPLES], ids=NAMES)
def test_picture_is_as_declared(picture: Picture) -> None:
    drawn = (IMAGES / f"{picture.name}.svg").read_text(encoding="utf-8")
    assert drawn == draw(picture), "run: python -m tests.docs.operator_pictures"


@pytest.mark.parametrize("picture", [picture for picture, _ in EXAMPLES], ids=NAMES)
def test_page_shows_the_picture(picture: Picture) -> None:
    assert re.search(rf"^!\[.+\]\(images/{picture.name}\.svg\)$", TEXT, re.MULTILINE)


def _verbs() -> set[str]:
    """The names of what streams have, but for what only runs them."""
    streams = (sc.Step, sc.KeyedStream, sc.WindowedStream, sc.Windowed, sc.ConnectedStreams)
    return {name for one in streams for name in dir(one) if not name.startswith("_")} - {"take"}


def test_every_verb_of_a_stream_is_shown() -> None:
    programs = "".join(program for _, program in EXAMPLES)
    assert {verb for verb in _verbs() if not re.search(rf"\.{verb}\b", programs)} == set()
