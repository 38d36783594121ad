"""Tables of a run: the ledger, one row per round and device, and the metrics, one row per round, as Parquet files."""
