"""CheckMate's five queries (Siachamis et al., ICDE 2024), with bounded channels and a real kill.

`queries` and `reachability` describe them, `changes` makes the input of the cyclic one, `measuring`
is the suite. The rules are those of github.com/delftdata/checkmate, read in November 2026.
"""
