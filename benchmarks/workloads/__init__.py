"""Workloads in a closed and in an open loop, one question per module. What they share:

Closed loop, nothing limits the sources but full queues:

- `topology`: the chain of Flink's own benchmark, its slow step, and the law of aligned barriers;
- `saturation`: a running job, and the gate that waits until its queues are full;
- `taking`: the cell that takes checkpoints in a fresh process, in modes that take turns;
- `judging`: rows and checks of what was taken.

The slow step is *I/O-slow* everywhere unless a row says otherwise: it awaits, as a call to an
external service does, and the event loop runs on. End-to-end latency is not shown: in a closed loop
it is queue length by rate, whatever the mode.

Open loop, records are due at times that wait for nobody:

- `counting`, `running`: the job that is measured, and its run beside a driver;
- `service`: a sink that does so many records per second;
- `killing`, `surviving`: a process that is killed, and what became of its records.
"""
