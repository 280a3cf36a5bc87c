-- The documents of objects whose names are given as a JSON array of [kind, tenant, project, id], as far as they are there.
SELECT CAST(wanted.number - 1 AS SIGNED) AS number, object.document
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
    number FOR ORDINALITY, kind BIGINT PATH '$[0]', tenant VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[1]',
    project VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[2]', id VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[3]'
)) AS wanted
STRAIGHT_JOIN object ON object.kind = wanted.kind AND object.tenant = CAST(wanted.tenant AS BINARY)
    AND object.project = CAST(wanted.project AS BINARY) AND object.id = CAST(wanted.id AS BINARY)
