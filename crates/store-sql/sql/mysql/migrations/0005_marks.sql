-- By what else an object is found, and the history of limits by tenant.

-- A mark is one object's.
CREATE TABLE IF NOT EXISTS object_mark (
    mark VARBINARY(128) NOT NULL PRIMARY KEY,
    kind SMALLINT NOT NULL,
    tenant VARBINARY(512) NOT NULL,
    project VARBINARY(512) NOT NULL,
    id VARBINARY(512) NOT NULL,
    KEY object_mark_by_object (kind, tenant, project, id)
) ENGINE = InnoDB;

-- Keys are found by their ids and by the hashes of their secrets, which are written in small letters.
REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT CONCAT('key ', id), kind, tenant, project, id FROM object WHERE kind = 3 AND LENGTH(id) <= 124;

REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT LOWER(hash), kind, tenant, project, id
FROM (
    SELECT
        CASE WHEN JSON_VALID(document) THEN JSON_UNQUOTE(JSON_EXTRACT(document, '$.hash')) END AS hash,
        kind, tenant, project, id
    FROM object WHERE kind = 3
) AS found
WHERE hash LIKE 'blake3:%' AND LENGTH(hash) <= 128;

REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT LOWER(hash), kind, tenant, project, id
FROM (
    SELECT
        CASE WHEN JSON_VALID(document) THEN JSON_UNQUOTE(JSON_EXTRACT(document, '$.previous.hash')) END AS hash,
        kind, tenant, project, id
    FROM object WHERE kind = 3
) AS found
WHERE hash LIKE 'blake3:%' AND LENGTH(hash) <= 128;

-- Whose a limit is; empty where it is nobody's, and for what was written before this layout.
ALTER TABLE limit_history
    ADD COLUMN tenant VARBINARY(512) NOT NULL DEFAULT '' FIRST,
    DROP PRIMARY KEY,
    ADD PRIMARY KEY (tenant, limit_name, version);
