"""Report the differences that a replay found, and which of them are expected."""
