SELECT coalesce(max(place), 0) FROM entry
