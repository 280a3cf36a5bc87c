-- Tenants that have entries, after ?1, at most ?2. Each step is one look into the index, however many entries a tenant has.
WITH RECURSIVE found (tenant) AS (
    SELECT (SELECT min(tenant) FROM entry_row WHERE side = 0 AND tenant > ?1)
    UNION ALL
    SELECT (SELECT min(tenant) FROM entry_row WHERE side = 0 AND tenant > found.tenant)
    FROM found
    WHERE found.tenant IS NOT NULL
)
SELECT tenant FROM found WHERE tenant IS NOT NULL LIMIT ?2
