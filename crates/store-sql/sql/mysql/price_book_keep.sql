-- Keeps what version ?1 of the price book says, unless it is there.
INSERT INTO price_book (version, first_at, document)
SELECT ?1, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED), ?2 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM price_book WHERE version = ?1)
