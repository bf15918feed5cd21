"""Workloads, one file each; `counting` and `running` are what the open-loop ones share."""
