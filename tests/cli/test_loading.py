from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcp.api.jobs import Job
from streamcp.cli.errors import WrongUse
from streamcp.cli.loading import load, parse_target

Write = Callable[..., Path]
ONE = "only = sc.Job('one')\n"
TWO = "a = sc.Job('a')\nb = sc.Job('b')\n"


def _name(loaded: Any) -> str:
    assert isinstance(loaded, Job)
    return loaded.name


@pytest.mark.parametrize(
    ("text", "module", "name", "is_file"),
    [
        ("orders.py", "orders.py", None, True),
        ("jobs/orders.py:main", "jobs/orders.py", "main", True),
        ("package.orders", "package.orders", None, False),
        ("package.orders:main", "package.orders", "main", False),
        ("C:\\jobs\\orders.py", "C:\\jobs\\orders.py", None, True),
    ],
)
def test_target_is_divided_at_the_name(
    text: str, module: str, name: str | None, is_file: bool
) -> None:
    target = parse_target(text)
    assert (target.module, target.name, target.is_file) == (module, name, is_file)


@pytest.mark.parametrize("text", ["my_job.py", "my_job", "my_job.py:only", "my_job:only"])
def test_only_job_is_found_in_every_form(write: Write, text: str) -> None:
    write(ONE)
    assert _name(load(text)) == "one"


def test_one_job_under_two_names_is_one(write: Write) -> None:
    write(ONE + "again = only\n")
    assert _name(load("my_job.py")) == "one"


def test_of_several_the_one_called_job_is_taken(write: Write) -> None:
    write(TWO + "job = sc.Job('third')\n")
    assert _name(load("my_job.py")) == "third"
    assert _name(load("my_job.py:b")) == "b"


def test_several_jobs_are_listed(write: Write) -> None:
    write(TWO)
    with pytest.raises(WrongUse, match=r"write my_job.py:a or my_job.py:b"):
        load("my_job.py")


def test_unknown_name_lists_the_jobs(write: Write) -> None:
    write(TWO)
    with pytest.raises(WrongUse, match=r"no job 'c'; it has a, b"):
        load("my_job.py:c")


def test_module_without_job_says_so(write: Write) -> None:
    write("")
    with pytest.raises(WrongUse, match=r"no Job and no function marked @sc.job"):
        load("my_job.py")


def test_missing_file_and_module_are_wrong_use(folder: Path) -> None:
    with pytest.raises(WrongUse, match=r"no file nowhere\.py"):
        load("nowhere.py")
    with pytest.raises(WrongUse, match=r"no module 'nowhere'"):
        load("nowhere")


def test_file_written_as_module_is_suggested(write: Write) -> None:
    write(ONE, "sub/my_job.py")
    (Path("sub") / "__init__.py").touch()
    assert _name(load("sub.my_job")) == "one"
    with pytest.raises(WrongUse, match=r"no module 'sub\.other'"):
        load("sub.other")


def test_module_that_lacks_an_import_of_its_own_raises_that(write: Write) -> None:
    write("import not_installed_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_at_all"):
        load("my_job")


def test_file_has_its_real_name_while_it_is_executed(write: Write) -> None:
    write("import sys\nassert sys.modules['my_job'].__name__ == __name__ == 'my_job'\n" + ONE)
    load("my_job.py")
    assert "my_job" in sys.modules


def test_main_block_is_not_executed(write: Write) -> None:
    write(ONE + "if __name__ == '__main__':\n    raise SystemExit(3)\n")
    assert _name(load("my_job.py")) == "one"


def test_file_that_fails_leaves_no_module(write: Write) -> None:
    write("raise ValueError('no')\n")
    with pytest.raises(ValueError, match="no"):
        load("my_job.py")
    assert "my_job" not in sys.modules


def test_file_called_like_a_known_module_is_refused(write: Write) -> None:
    write(ONE, "json.py")
    with pytest.raises(WrongUse, match=r"json\.py is called like the module 'json'; rename"):
        load("json.py")


def test_neighbours_of_a_file_are_importable(write: Write) -> None:
    write("NAME = 'near'\n", "sub/neighbour.py")
    write("from neighbour import NAME\njob = sc.Job(NAME)\n", "sub/near_job.py")
    assert _name(load("sub/near_job.py")) == "near"


def test_loading_twice_gives_the_same_job(write: Write) -> None:
    write(ONE)
    assert load("my_job.py") is load("my_job.py") is load("my_job")
