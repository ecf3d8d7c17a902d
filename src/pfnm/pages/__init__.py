"""One HTML page for a result: text, tables and charts in one file that loads nothing."""
