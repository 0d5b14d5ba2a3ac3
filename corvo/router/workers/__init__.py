"""Workers: those that fetched lately, and their health."""
