"""The asynchronous shell around the decisions of `checkpoint`: trigger, collect, complete, end.

It meets the tasks only through two small protocols: what they tell upward, and `TaskGateway`.
"""
