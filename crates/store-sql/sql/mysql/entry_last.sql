SELECT COALESCE(MAX(place), 0) AS place FROM entry
