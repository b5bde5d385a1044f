"""`lab nightly`: trees measured every night, regressions found, bisected and told once."""
