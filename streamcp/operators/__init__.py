"""The contract that users and connectors implement, and the description of every step.

Nothing here runs anything: `runtime` interprets the descriptions.
"""
