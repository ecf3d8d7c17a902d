"""Three hospitals train one network that reads the digits on their forms."""
