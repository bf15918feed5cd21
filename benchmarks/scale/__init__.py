"""What happens at scale: many subtasks, many keys, many channels, much to freeze and restore."""
