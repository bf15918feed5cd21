"""Running a job: the wiring of runtime and coordinator, attempts and restarts, the job's handle."""
