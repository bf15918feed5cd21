"""Where snapshots go: the on-disk format, the completion log, retention.

All methods block; callers run them in threads.
"""
