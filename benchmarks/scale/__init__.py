"""What happens at scale: many subtasks, many keys, many channels, much to write and to read back."""
