-- Objects whose names are given as a JSON array of [kind, tenant, project, id].
DELETE FROM object
WHERE (kind, tenant, project, id) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?1)
)
