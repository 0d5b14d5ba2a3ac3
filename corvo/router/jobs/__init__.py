"""Jobs by their ids: reading, explaining and changing them; dead jobs."""
