"""Floors and ratios: what the engine costs beside a bare loop that does the same work.

Each window is one whole job: the start-up is in it, and shown beside the figures; windows are long
enough that it hardly counts. Floor and subject take turns in one process and event loop. The bare
loops call the same functions (`work`) on the same records and do the same keyed work with a plain
dict. One question per module.
"""
