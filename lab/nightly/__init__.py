"""Nights: trees measured by plan, events, and the site."""
