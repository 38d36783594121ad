"""What clients keep from round to round: in memory, and in a file where it does not fit."""
