"""The table of a view: which event a row shows, and the file that keeps rows with offsets."""
