"""Rule 14: the parameters of a job function are options."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import streamcp as sc
from streamcp.api.parameters import JobOption

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Color(Enum):
    RED = "red"


@sc.job
def orders(
    topic: str,
    *,
    limit: int = 1000,
    rate: float | None = None,
    loud: bool = False,
    out: Path = Path("dead"),
    color: Color = Color.RED,
    mode_of_work: Literal["fast", "slow"] = "fast",
    since: date = date(2024, 1, 1),
    names: list[str] = [],  # noqa: B006
) -> sc.Job:
    """Read orders.

    Args:
        topic: where they come from
        limit: how many at once
    - `loud`: say what happens
    """
    return sc.Job(topic, parallelism=limit)


def test_options_tell_name_type_default_and_help() -> None:
    assert orders.options == (
        JobOption("topic", str, None, True, "where they come from"),
        JobOption("limit", int, 1000, False, "how many at once"),
        JobOption("rate", float, None, False, ""),
        JobOption("loud", bool, False, False, "say what happens"),
        JobOption("out", Path, Path("dead"), False, ""),
        JobOption("color", Color, Color.RED, False, ""),
        JobOption("mode_of_work", Literal["fast", "slow"], "fast", False, ""),
        JobOption("since", date, date(2024, 1, 1), False, ""),
        JobOption("names", list[str], [], False, ""),
    )


def test_call_makes_a_new_job_with_its_arguments() -> None:
    first, second = orders("a", limit=2), orders("a", limit=2)
    assert (first.name, first.graph.parallelism) == ("a", 2)
    assert first is not second


def test_factory_keeps_name_and_docstring_of_the_function() -> None:
    assert (orders.__name__, orders.__module__) == ("orders", __name__)  # type: ignore[attr-defined]
    assert str(orders.__doc__).startswith("Read orders.")


def test_parameter_without_annotation_has_the_type_of_its_default() -> None:
    @sc.job
    def plain(limit=3) -> sc.Job:  # type: ignore[no-untyped-def]
        return sc.Job("x", parallelism=limit)

    assert plain.options == (JobOption("limit", int, 3, False, ""),)


def test_all_wrong_parameters_are_reported_together() -> None:
    def build(fresh: bool, price: Decimal, untyped, *rest: str, **more: int) -> sc.Job:  # type: ignore[no-untyped-def]
        return sc.Job("x")

    with pytest.raises(sc.BuildError) as caught:
        sc.job(build)
    problems = caught.value.problems
    assert [part in problem for part, problem in zip(WRONG, problems, strict=True)] == [True] * 5
    assert all(problem.startswith(__file__) for problem in problems)


WRONG = (
    "'fresh' is called like an option of streamcp run",
    "'price' of type",
    "'untyped' of type",
    "*rest",
    "**more",
)


@pytest.mark.parametrize("hint", [list[Decimal], int | str, dict, object, list])
def test_type_that_no_option_can_have_is_refused(hint: Any) -> None:
    def build(value: Any) -> sc.Job:
        return sc.Job("x")

    build.__annotations__["value"] = hint
    with pytest.raises(sc.BuildError, match=r"'value' of type .* cannot be an option"):
        sc.job(build)


def test_type_known_to_the_checker_only_is_refused() -> None:
    def build(value: Unknown) -> sc.Job:
        return sc.Job("x")

    with pytest.raises(sc.DefinitionError, match="import it outside of TYPE_CHECKING"):
        sc.job(build)


def test_coroutine_function_is_no_job_function() -> None:
    async def build() -> sc.Job:
        return sc.Job("x")

    with pytest.raises(sc.DefinitionError, match="plain function"):
        sc.job(build)  # type: ignore[arg-type]


def test_function_that_returns_no_job_is_named() -> None:
    @sc.job  # type: ignore[arg-type]
    def forgot() -> None: ...

    with pytest.raises(sc.DefinitionError, match="@job forgot returned None; end it with"):
        forgot()
