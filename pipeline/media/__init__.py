"""ffmpeg and friends: what goes in, what comes out, and how their failures become our errors."""
