"""What a run cost: one row a round and device, and one row a round, in memory and as Parquet files."""
