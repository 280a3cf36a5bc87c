SELECT max(coalesce((SELECT max(place) FROM entry_row), 0), place) AS place FROM journal_kept
