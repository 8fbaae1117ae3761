"""Ironclip over HTTP: routes of a few lines that call `intake` and the store's queries."""
