"""What every hifi service shares. Read event.py, topics.py and errors.py first."""
