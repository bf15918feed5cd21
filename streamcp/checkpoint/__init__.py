"""The checkpoint protocol as pure decisions: facts in, decisions out.

No asyncio, no time, no files, no randomness here: the same facts give the same decisions. The
rule numbers (P8, P13, …) are those of `docs/explanation/checkpointing.md`.
"""
