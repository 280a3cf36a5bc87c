INSERT INTO change (number, at, who, kind, tenant, project, id, before, after)
VALUES (?1, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?2, ?3, ?4, ?5, ?6, ?7, ?8)
