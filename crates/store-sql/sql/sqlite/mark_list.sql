-- The marks of objects whose names are given as a JSON array of [kind, tenant, project, id].
WITH wanted AS MATERIALIZED (SELECT key AS number, value FROM json_each(?1))
SELECT wanted.number, object_mark.mark
FROM wanted CROSS JOIN object_mark
WHERE object_mark.kind = wanted.value ->> 0 AND object_mark.tenant = wanted.value ->> 1
    AND object_mark.project = wanted.value ->> 2 AND object_mark.id = wanted.value ->> 3
