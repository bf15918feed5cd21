"""The page of results, made of the file of one run: tables, and figures drawn from raw data."""
