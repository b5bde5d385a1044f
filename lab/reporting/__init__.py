"""One stored result, every way to show it: one module per format. Nothing here measures, builds or boots."""
