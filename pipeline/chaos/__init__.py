"""Does anything get lost, doubled or stuck when everything around it breaks at once? `ironclip chaos` tries it."""
