"""Azure, through obstore."""
