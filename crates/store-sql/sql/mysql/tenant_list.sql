-- Tenants that have entries, after ?1, at most ?2.
SELECT DISTINCT tenant FROM entry_row WHERE side = 0 AND tenant > ?1 ORDER BY tenant LIMIT ?2
