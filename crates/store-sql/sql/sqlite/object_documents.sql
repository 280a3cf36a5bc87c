-- The documents of objects whose names are given as a JSON array of [kind, tenant, project, id], as far as they are there.
WITH wanted AS MATERIALIZED (SELECT key AS number, value FROM json_each(?1))
SELECT wanted.number, object.document
FROM wanted CROSS JOIN object
WHERE object.kind = wanted.value ->> 0 AND object.tenant = wanted.value ->> 1
    AND object.project = wanted.value ->> 2 AND object.id = wanted.value ->> 3
