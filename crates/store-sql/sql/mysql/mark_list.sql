-- The marks of objects whose names are given as a JSON array of [kind, tenant, project, id].
SELECT CAST(wanted.number - 1 AS SIGNED) AS number, object_mark.mark
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    number FOR ORDINALITY, kind BIGINT PATH '$[0]', tenant VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[1]',
    project VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[2]', id VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[3]'
)) AS wanted
STRAIGHT_JOIN object_mark ON object_mark.kind = wanted.kind AND object_mark.tenant = CAST(wanted.tenant AS BINARY)
    AND object_mark.project = CAST(wanted.project AS BINARY) AND object_mark.id = CAST(wanted.id AS BINARY)
