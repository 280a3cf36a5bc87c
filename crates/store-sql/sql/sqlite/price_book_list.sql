-- ?1 versions, the newest first.
SELECT version, first_at FROM price_book ORDER BY first_at DESC, version LIMIT ?1
