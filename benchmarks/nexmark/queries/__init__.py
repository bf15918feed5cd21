"""Nexmark's queries, one file each: the job, the loop by hand, the question in SQL.

They follow nexmark/nexmark's SQL (queries/q0.sql to q20.sql, read in November 2026). Where several
answers would be right there, because bids of one millisecond have no order, the file says which
one is meant.
"""

from typing import Any

from benchmarks.nexmark.queries.q0 import Q0
from benchmarks.nexmark.queries.q1 import Q1
from benchmarks.nexmark.queries.q2 import Q2
from benchmarks.nexmark.queries.q3 import Q3
from benchmarks.nexmark.queries.q5 import Q5
from benchmarks.nexmark.queries.q8 import Q8
from benchmarks.nexmark.queries.q8_running import Q8_RUNNING
from benchmarks.nexmark.queries.q11 import Q11
from benchmarks.nexmark.queries.q12 import Q12
from benchmarks.nexmark.queries.q12_running import Q12_RUNNING
from benchmarks.nexmark.queries.q18 import Q18
from benchmarks.nexmark.queries.q20 import Q20
from benchmarks.nexmark.query import Query

QUERIES: dict[str, Query[Any]] = {
    query.name: query
    for query in (Q0, Q1, Q2, Q3, Q5, Q8, Q11, Q12, Q18, Q20, Q8_RUNNING, Q12_RUNNING)
}
