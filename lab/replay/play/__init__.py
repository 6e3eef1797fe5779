"""Play a recording on a lab, step by step."""
