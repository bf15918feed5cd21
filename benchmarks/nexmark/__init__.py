"""Nexmark: an online auction whose people, auctions and bids are asked ten questions.

`python -m benchmarks run nexmark` measures each query beside a loop written by hand, and compares
the results of both with those of SQL. `model` and `generator` make the events, `queries` holds one
file per question, `answers` asks SQL, `measuring` is the suite.
"""
