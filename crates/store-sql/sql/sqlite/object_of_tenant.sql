-- Tenant ?1, its projects, keys and services, in no order.
SELECT kind, tenant, project, id, version, document, created_at, changed_at
FROM object
WHERE kind IN (1, 2, 3, 4) AND tenant = ?1
