-- Keeps what version ?1 of the price book says, unless it is there.
INSERT INTO price_book (version, first_at, document)
SELECT ?1, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?2
WHERE NOT EXISTS (SELECT 1 FROM price_book WHERE version = ?1)
