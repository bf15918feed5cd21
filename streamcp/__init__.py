"""streamcp: async streaming pipelines whose checkpoints take milliseconds under backpressure."""
