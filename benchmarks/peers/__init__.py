"""streamcp beside its peers: the same functions on the same numbers, each engine at its best.

Nothing is imported here: the interpreters of the peers come through this file, and know neither
streamcp nor what the other benchmarks need.
"""
