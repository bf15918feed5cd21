"""What a job tells about itself: counters, histograms and the event log.

No exporter, no asyncio and no time here: moments are passed in. Nothing in this floor may harm the
job that it observes.
"""
