import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.storage import layout


@given(st.text(min_size=1).filter(lambda job: job.isprintable()))
def test_job_directory_is_one_safe_name_that_tells_the_job(job: str) -> None:
    name = layout.job_directory(job)
    assert "/" not in name
    assert not name.startswith(".")
    assert layout.job_name(name) == job


def test_simple_job_keeps_its_name() -> None:
    assert layout.job_directory("orders-2") == "orders-2"


@given(st.integers(1, 10**18 - 1))
def test_names_tell_their_numbers(number: int) -> None:
    assert layout.checkpoint_of(layout.checkpoint_directory(number)) == number
    assert layout.entry_number(layout.entry(number)) == number
    assert layout.is_data_file(layout.data_file(number, 3, 1))


@pytest.mark.parametrize("name", ["", "chk-", "chk-1", "chk-0000000x", "log", "chk-00000001.bak"])
def test_other_names_belong_to_no_checkpoint(name: str) -> None:
    assert layout.checkpoint_of(name) is None
    assert layout.entry_number(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "chk-00000001/_metadata",
        "../chk-00000001/data-1-1",
        "chk-00000001/data-1-1\n",
        "/chk-00000001/data-1-1",
        "chk-00000001/data-1-1/../../x",
    ],
)
def test_names_that_lead_elsewhere_are_no_data_files(name: str) -> None:
    assert not layout.is_data_file(name)
