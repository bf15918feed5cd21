"""What a job withstands: kill -9, steps that are stuck, slow or failing, damaged files, full disks.

Real processes and real time. One question per module; the jobs are in `children`, run as child
processes. What is random is drawn from the seed that is printed, and `--seed` replays it.
"""
