"""Read a recording: its steps, the conditions it waited for, and the state it began with."""
