"""What kind of function the user gave (rule 2): decided once, when a step is described.

Looks, never calls: a lambda that returns a coroutine looks plain here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["plain", "generator", "coroutine", "async generator"]


def kind_of(fn: Callable[..., Any]) -> Kind:
    """Tell what calling `fn` gives: through partials, methods and objects with `__call__`."""
    target = innermost(fn)
    # Of the type: a function's own call is no coroutine function, and that of a class makes one.
    for candidate in (target, inspect.getattr_static(type(target), "__call__", None)):
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
        if inspect.isasyncgenfunction(candidate):
            return "async generator"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return "plain"


def innermost(fn: Any) -> Any:
    """Look through partials."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def is_lambda(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` is a lambda, or a partial of one."""
    return getattr(innermost(fn), "__name__", None) == "<lambda>"


def name_of(fn: object) -> str:
    """Name `fn` as its author would: `rate`, `Ledger`, `lambda`."""
    target = innermost(fn)
    name = getattr(target, "__name__", None) or type(target).__name__
    return "lambda" if name == "<lambda>" else str(name)


def accepts(fn: Callable[..., Any], arguments: int) -> bool:
    """Tell whether `fn` can be called with that many positional arguments; True if unknown."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # builtins need not have one
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True
