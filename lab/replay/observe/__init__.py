"""What the lab shows while a recording is played: requests, watches, object history and host state."""
