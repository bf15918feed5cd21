"""Jobs to run, read and copy from; they use the public words of streamcp only."""
