-- Tenant ?1, its projects, keys, services and users, in no order, with the revision they are of; one row of the revision alone if there
-- is nothing. One statement sees one moment.
SELECT newest.number AS revision, object.kind, object.tenant, object.project, object.id, object.version, object.document,
    object.created_at, object.changed_at
FROM (SELECT COALESCE(MAX(number), 0) AS number FROM `change`) AS newest
LEFT JOIN object ON object.kind IN (1, 2, 3, 4, 8) AND object.tenant = ?1
