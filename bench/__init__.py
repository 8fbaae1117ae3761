"""How fast is it? Ratios against a peer that was measured in the same run, on the same machine."""
