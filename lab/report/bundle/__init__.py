"""Bundles: a result that is repeated without the lab that measured it."""
