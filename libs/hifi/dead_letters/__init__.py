"""Looking at dead letters, and letting them go again."""
