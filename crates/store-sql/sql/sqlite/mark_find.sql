SELECT kind, tenant, project, id FROM object_mark WHERE mark = ?1
