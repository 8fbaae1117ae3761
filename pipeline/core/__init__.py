"""The rules, and nothing else: standard library only, no clock, no I/O, no logging."""
