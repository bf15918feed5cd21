"""What users write: jobs, streams, sources and settings.

Describing only: a call checks its arguments and adds a step to the job's logical graph. Runners
are imported inside `run`, `start` and `take`, nowhere else, so that `import streamcp` stays light.
"""
